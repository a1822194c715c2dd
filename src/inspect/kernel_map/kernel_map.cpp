// Which kernel's map a request asks for.
#include "inspect/kernel_map/kernel_map.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "cuda/known_gpus.hpp"
#include "plan/select.hpp"

namespace convoy::inspect {
namespace {

constexpr const char* published = "cutlass_multistage, cudnn_volta";

/// A GPU's kernels that have a map.
struct Family {
  std::string_view kernel;
  std::unique_ptr<KernelMap> (*map)(const Stage&, const Machine&, const std::string& tile);
};
constexpr Family families[] = {{"few", map_few},
                               {"halo", map_halo},
                               {"window", map_window},
                               {"winograd4", map_winograd_gpu},
                               {"depthwise", map_depthwise},
                               {"few_filters", map_few_filters},
                               {"fma", map_fma}};

const Family* family_of(const std::string& kernel) {
  for (const Family& family : families)
    if (family.kernel == kernel) return &family;
  return nullptr;
}

/// A CPU's: map_winograd's.
constexpr std::string_view of_cpus[] = {"winograd4", "winograd2"};

bool of_a_cpu(const std::string& kernel) {
  return std::ranges::find(of_cpus, kernel) != std::end(of_cpus);
}

[[noreturn]] void no_map(const std::string& kernel, const std::string& device) {
  throw Error(
      fmt::format("explain: kernel {} of {} has no map. Those with one: {}. Name one with "
                  "--kernel, or a GPU with --device ({})",
                  kernel, device, mapped_kernels(), cuda::known_gpu_names()));
}

/// A GPU by its short name, or one that is here.
Machine gpu_of(const MapRequest& request) {
  if (const auto known = cuda::known_gpu(request.device)) return cuda::machine_of(*known);
  PlanOptions options;
  if (!request.device.starts_with("cuda"))
    throw Error(fmt::format("device \"{}\": expected cpu, cuda, cuda:<number> or one of {}",
                            printable(request.device, 80), cuda::known_gpu_names()));
  options.device = parse_device(request.device);
  return machine_for(options);
}

std::unique_ptr<KernelMap> map_on_gpu(const MapRequest& request, const Machine& machine) {
  const Stage& stage = request.stage;
  if (auto map = map_gpu_kernel(request.kernel, stage, machine, request.tile)) return map;
  if (!request.kernel.empty()) no_map(request.kernel, machine.name);
  if (!request.tile.empty())
    throw Error(
        "explain: --tile without --kernel: found no kernel to which the tile belongs. Name it");
  // Hopper's own family where it serves the stage: what the planner takes there, but for neurons
  // that it expects to be faster in a pass of their own.
  std::string why;
  for (const auto& map : {map_halo, map_window, map_fma}) {
    try {
      return map(stage, machine, {});
    } catch (const Error& error) {
      why += (why.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (auto map = map_by_any_wrapper(stage, machine)) return map;
  throw Error(why);
}

}  // namespace

bool is_mapped_on_gpu(const std::string& kernel) {
  return family_of(kernel) != nullptr ||
         (", " + wrapped_kernels() + ", ").find(", " + kernel + ", ") != std::string::npos;
}
std::string mapped_kernels() {
  std::string ours;
  for (const Family& family : families)
    ours += (ours.empty() ? "" : ", ") + std::string(family.kernel);
  return fmt::format(
      "{} (CPU); {} (GPU), and the kernels that run one of these between passes (..._pool, "
      "..._padded, ..._nchw, ..._neuron_pass); of others: {}",
      fmt::join(of_cpus, ", "), ours, published);
}

std::unique_ptr<KernelMap> map_gpu_kernel(const std::string& kernel, const Stage& stage,
                                          const Machine& machine, const std::string& tile) {
  if (const Family* family = family_of(kernel)) return family->map(stage, machine, tile);
  return map_wrapped(kernel, stage, machine, tile);
}

void expect_served(const char* kernel, const Stage& stage,
                   const std::vector<std::string>& refusals) {
  if (refusals.empty()) return;
  throw Error(fmt::format("explain: kernel {} refuses {}: {}", kernel, to_text(stage),
                          fmt::join(refusals, "; ")));
}

std::vector<MapFact> implicit_gemm_facts(Index rows, bool pooled, int tile_m, int tile_n,
                                         Index m_tiles, Index n_tiles) {
  return {
      {"GEMM rows", fmt::format("{}", rows),
       pooled ? "pixels that the pool takes, numbered window by window: n, p/2, q/2, dp, dq"
              : "N*P*Q, numbered n, p, q"},
      {"tile", fmt::format("{} x {}", tile_m, tile_n), "rows x filters of a CTA"},
      {"grid", fmt::format("{} x {}", m_tiles, n_tiles),
       fmt::format("tiles along gemm_m x gemm_n: {} CTAs, of one tile each", m_tiles * n_tiles)}};
}

void KernelMap::lacks(const std::string& what) const {
  throw Error(fmt::format("explain: kernel {} has no {}", kernel_, what));
}
Accumulator KernelMap::accumulator(const OutputIndex&) const {
  lacks("threads whose registers hold a tile");
}
std::optional<OutputIndex> KernelMap::output_of(const TilePlace&, int, int) const {
  lacks("threads whose registers hold a tile");
}
OperandPlace KernelMap::operand(const OutputIndex&, const TapIndex&) const {
  lacks("slots in shared memory");
}
InputElement KernelMap::loaded(const TilePlace&, int, Index, int) const {
  lacks("registers that x is loaded into and multiplied from");
}
InputElement KernelMap::in_slot(const TilePlace&, Index, int) const {
  lacks("slots in shared memory");
}
TilePlace KernelMap::tile_at(Index, Index) const {
  lacks("grid of CTAs: leave --thread and --block out, and give --at or --gemm");
}
TilePlace KernelMap::in_step(const TilePlace& tile, Index t) const {
  if (t == 0) return tile;
  lacks("tiles of time steps: --block X,Y,T is for a neuron whose steps have inputs of their own");
}
ThreadStep KernelMap::thread_step(const TilePlace&, int, Index) const {
  lacks("threads that step through a tile: leave --thread out, and give --at or --gemm");
}
SharedMemoryMap KernelMap::shared_memory() const {
  lacks("shared memory: --smem is for a GPU's kernels");
}
Pipeline KernelMap::pipeline() const {
  lacks("pipeline of slots: --pipe is for a GPU's kernels");
}
std::optional<WinogradPlace> KernelMap::winograd(const OutputIndex&, const TapIndex*) const {
  return std::nullopt;
}

std::unique_ptr<KernelMap> make_kernel_map(const MapRequest& asked) {
  MapRequest request = asked;
  request.stage = asked.stage.normalised();
  static_cast<void>(shapes_of(request.stage));  // throws for a stage that is not legal
  if (auto map = map_published(request.stage, request.kernel)) return map;
  // A GPU's kernel without a GPU named: the GPU that the figures of the documents are from.
  if (is_mapped_on_gpu(request.kernel) && !of_a_cpu(request.kernel) && request.device == "cpu")
    request.device = "h200";
  if (request.device != "cpu") {
    const Machine machine = gpu_of(request);
    return map_on_gpu(request, machine);
  }
  PlanOptions options;
  options.threads = request.threads;
  const Machine machine = machine_for(options);
  if (!request.kernel.empty() && !of_a_cpu(request.kernel)) no_map(request.kernel, "the CPU");
  std::string kernel = request.kernel;
  if (kernel.empty()) {
    options.use_tuning = false;
    kernel = select(Chain(request.stage), machine, options, nullptr).kernel().name();
    if (!of_a_cpu(kernel)) no_map(kernel, "the CPU, which the planner takes for this stage,");
  }
  return map_winograd(request.stage, machine, kernel, request.tile);
}

}  // namespace convoy::inspect
