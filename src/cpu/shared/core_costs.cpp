#include "cpu/shared/core_costs.hpp"

#include <algorithm>

#include "core/threads.hpp"

namespace convoy {
namespace cpu {
namespace {

constexpr const char* by_hand = "by hand, 2026-11-23";

constexpr CoreCosts named(std::string_view cores, std::string_view fitted, CoreCosts c) {
  c.cores = cores;
  c.fitted = fitted;
  return c;
}

// 256-bit multiply-adds, L3 near its cores; and what was never measured.
constexpr CoreCosts generic_costs = named("AVX2", by_hand, {});
constexpr CoreCosts neon_costs = named("NEON", "not measured: those of AVX2", {});
// 512-bit multiply-adds as two halves.
constexpr CoreCosts zen4_costs = [] {
  CoreCosts c = named("Zen 4", by_hand, {});
  c.grouped.product_steps = 1.1;
  c.grouped.product_of_two_steps = 1.5;
  return c;
}();

// An Intel server without its AVX-512.
constexpr CoreCosts mesh_costs = [] {
  CoreCosts c = named("AVX2, L3 on a mesh", by_hand, {});
  // Sixteen threads read 131e9 and write 68e9.
  c.memory_bandwidth = 100e9;
  c.direct.fetched_bytes_a_cycle = 20;
  c.tap_pairs.near_bytes_a_cycle = 15;
  c.tap_pairs.far_bytes_a_cycle = 5;
  c.winograd.u_near_speed = 14;
  c.winograd.v_near_speed = c.winograd.v_shared_speed = c.winograd.v_far_speed;
  return c;
}();

// Two whole 512-bit multiply-adds a cycle: loads and transforms don't keep pace with them.
constexpr CoreCosts wide(CoreCosts c) {
  c.direct.row_loads_a_cycle = 2;
  // So that of two tiles alike the one with fewer loads wins.
  c.direct.load_cycles = 0.25;
  c.direct.row_load_cycles = 0.08;
  c.winograd.multiply_share = 0.8;
  c.winograd.transform_share = 0.5;
  c.general.multiply_share = 0.6;
  // Not measured: a permutation takes one of the two units that multiply.
  c.grouped.product_steps = c.grouped.product_of_two_steps = 2;
  return c;
}

constexpr CoreCosts zen5_costs = [] {
  CoreCosts c = named("Zen 5", by_hand, wide(zen4_costs));
  c.winograd.u_near_speed = 8;
  return c;
}();

constexpr CoreCosts golden_cove_costs = [] {
  CoreCosts c = named("Golden Cove server", by_hand, wide(mesh_costs));
  c.winograd.u_near_l2s = 4;
  c.winograd.u_near_speed = 4;
  c.winograd.u_l3_speed = c.winograd.u_memory_speed = 1.3;
  return c;
}();

}  // namespace

const CoreCosts& core_costs(const Machine& machine) {
  if (machine.costs) return *machine.costs;
  if (machine.isa == "avx512") {
    if (machine.halves) return zen4_costs;
    return machine.mesh ? golden_cove_costs : zen5_costs;
  }
  if (machine.isa == "neon") return neon_costs;
  return machine.mesh ? mesh_costs : generic_costs;
}

}  // namespace cpu

Machine with_threads(Machine machine, int threads) {
  const CoreCosts& costs = cpu::core_costs(machine);
  machine.costs = &costs;
  machine.threads = threads;
  // Two multiply-adds a cycle, two operations each.
  const double flops_a_cycle = (machine.halves ? 2.0 : 4.0) * machine.vector_floats;
  machine.peak_flops = flops_a_cycle * costs.clock * threads;
  machine.memory_bandwidth = std::min(costs.thread_bandwidth * threads, costs.memory_bandwidth);
  return machine;
}

Machine cpu_machine(int threads) {
  check_threads(threads);
  return with_threads(cpu_facts(), threads > 0 ? threads : default_threads());
}

}  // namespace convoy
