#include "bench/chains.hpp"

#include "bench/check.hpp"
#include "bench/gpu_runs.hpp"
#include "bench/race.hpp"
#include "core/measure.hpp"
#include "plan/chain_runs.hpp"
#include "verify/chain_parity.hpp"

namespace convoy::bench {
namespace {

// Whether the oracle was asked. Throws Error when the kernel is wrong.
bool checked(const Chain& chain, const Bound& bound) {
  for (const Index n : {Index{3}, Index{1}}) {
    const OwnedChain few = with_images(chain, std::min(n, chain.front().n));
    if (!verify::ChainParity::affordable(few)) continue;
    Threads threads(default_threads());
    verify::ChainParity parity(few, 1, bound.machine().device, threads);
    verify::Tally tally;
    const auto failures = parity.check(bound.kernel(), bound.selection().tile.tile, false, tally);
    if (failures.empty()) return true;
    throw wrong_output(few, bound.kernel().name(), bound.machine().device.kind, failures.front());
  }
  return false;
}

}  // namespace

double flops_of(const Chain& chain) {
  double flops = 0;
  for (const Stage& stage : stages_alone(chain))
    flops += 2 * static_cast<double>(shapes_of(stage).macs * (stage.hold ? 1 : stage.t));
  return flops;
}

Row run(const Chain& chain, const Options& options) {
  const double seconds = options.seconds_per_turn;
  ChainRuns runs(chain, options.plan);
  const auto bound = runs.bind(options.plan.kernel);
  Row row;
  row.stage = to_text(chain);
  row.kernel = bound->kernel().name();
  row.tile = bound->selection().tile.tile.name;
  row.arithmetic = bound->kernel().arithmetic();
  row.threads = bound->machine().threads;
  row.checked = checked(chain, *bound);

  Race race(options, 1);
  Contestant whole{.turn = [&] { return runs.sample_whole(*bound, seconds).seconds; }};
  whole.timing.name = "convoy";
  race.add(std::move(whole));
  Contestant stages{.turn = [&] { return runs.sample_stages(seconds).seconds; }};
  stages.timing.name = "stage by stage";
  race.add(std::move(stages));
  const Machine& machine = bound->machine();
  // Of a GPU the peak that it was built for: what its clock is in these turns is not known.
  race.run(row.stage, [&] {
    if (!bound->on_gpu()) return measure_peak_flops(machine.threads, 0.002);
    return built_peak(machine, chain.front().dtype);
  });
  race.fill(row, 0);
  row.gflops = 1e-9 * flops_of(chain) / row.ours.median;
  return row;
}

}  // namespace convoy::bench
