#include "core/failure.hpp"
#include "cuda/error.hpp"
#include "cuda/sm90/halo_neuron.hpp"
#include "cuda/sm90/halo_neuron_membranes.cuh"
#include "cuda/sm90/launching.hpp"
#include "cuda/types.cuh"

namespace convoy::cuda::sm90 {

NeuronKernel find_neuron_f16(Accumulator wanted, PoolKind pool);   // halo_neuron_f16.cu
NeuronKernel find_neuron_bf16(Accumulator wanted, PoolKind pool);  // halo_neuron_bf16.cu
NeuronKernel find_neuron_steps_f16(Accumulator wanted, PoolKind pool, int time_steps);
NeuronKernel find_neuron_steps_bf16(Accumulator wanted, PoolKind pool, int time_steps);

namespace {

NeuronKernel find(const Stage& stage, const HaloTile& tile) {
  return for_16_bits(stage.dtype, [&]<class T>() {
    constexpr bool half = std::is_same_v<T, __half>;
    const Accumulator wanted{tile.instruction_n(), tile.instructions()};
    const PoolKind pool = pool_kind(stage, tile);
    if (tile.time_steps > 1)
      return (half ? find_neuron_steps_f16 : find_neuron_steps_bf16)(wanted, pool, tile.time_steps);
    return (half ? find_neuron_f16 : find_neuron_bf16)(wanted, pool);
  });
}

/// The stage of so many images.
Stage of_images(Stage stage, Index n) {
  stage.n = n;
  return stage;
}
/// The stage for x's tensor map: time steps count as images, unless a tile has several steps.
Stage of_x(const Stage& stage, const HaloTile& tile, Index n) {
  return of_images(stage, tile.time_steps > 1 ? n : n * halo_inputs(stage));
}

std::string name_of(const HaloTile& tile) {
  return "halo_neuron " + tile.name();
}

}  // namespace

NeuronParams neuron_params(const Stage& stage, const HaloTile& tile, const HaloLayout& layout) {
  NeuronParams p{halo_params(stage, layout), device_neuron(stage)};
  const Shapes shapes = shapes_of(stage);
  p.held = static_cast<int>(stage.hold ? stage.t : 1);
  p.turns = static_cast<int>(halo_turns(stage, tile));
  p.by_turns = Divisor(p.turns);
  p.line = tile.inner == Inner::line;
  p.cells_x = static_cast<int>(shapes.q);
  p.cells_y = p.line ? 1 : static_cast<int>(shapes.p);
  p.brick_w = tile.inner == Inner::brick ? tile.bw : 0;
  p.instruction_x = tile.inner == Inner::pixels && tile.bw > 8 ? 8 : 0;
  p.instruction_n = tile.inner == Inner::pixels && tile.bn > 1 ? 1 : 0;
  return p;
}

struct HaloNeuronLaunch::Ready {
  Stage stage;
  HaloTile tile;
  HaloLayout layout;
  LoadedKernel<NeuronParams> kernel;
  NeuronParams params;  // of a run of all images, with dense x and y: their addresses are set last
};

HaloNeuronLaunch::HaloNeuronLaunch(const Stage& stage, const HaloTile& tile,
                                   const HaloLayout& layout)
    : ready_(new Ready{stage,
                       tile,
                       layout,
                       {find(stage, tile), name_of(tile)},
                       neuron_params(stage, tile, layout)}) {}
HaloNeuronLaunch::~HaloNeuronLaunch() = default;

void HaloNeuronLaunch::use(const void* w) {
  auto& [stage, tile, layout, kernel, p] = *ready_;
  const std::string why = encode_maps(of_x(stage, tile, stage.n), stage, tile, layout, w, p);
  if (!why.empty()) throw DeviceError(name_of(tile) + " for " + to_text(stage) + ": " + why);
}

std::string HaloNeuronLaunch::run(const Run& run, cudaStream_t stream) const noexcept {
  const auto& [stage, tile, layout, kernel, ready] = *ready_;
  NeuronParams p = ready;
  p.post.bias = run.bias;
  p.membrane_in = run.membrane_in;
  p.membrane_out = run.membrane_out;
  const int grid = halo_grid_of(layout, halo_places_of(stage, tile, layout, run.n));
  p.tiles = halo_tiles_of(stage, tile, layout, run.n);
  p.by_grid = Divisor(grid);
  const auto n = static_cast<int>(run.n);
  p.cells_n = p.line ? 1 : n;
  if (p.line) p.cells_x = n * static_cast<int>(stage.h * stage.w);
  p.step_n = p.line ? 0 : n;
  p.step_x = p.line ? p.cells_x : 0;
  const bool whole = run.n == stage.n;
  std::string why = aim(&p.x, run.x, whole && run.x_pixel_stride == stage.c, [&] {
    return halo_x_map(of_x(stage, tile, run.n), tile, layout, run.x_pixel_stride);
  });
  if (why.empty())
    why = aim(&p.y, run.y, whole && run.y_pixel_stride == stage.k,
              [&] { return halo_y_map(of_images(stage, run.n), tile, run.y_pixel_stride); });
  if (!why.empty()) return why;
  return launch(kernel, p, grid, halo_threads, layout.shared_bytes, stream,
                [&] { return name_of(tile) + " for " + to_text(stage); });
}

cudaFuncAttributes halo_neuron_attributes(const Stage& stage, const HaloTile& tile) {
  cudaFuncAttributes attributes{};
  const NeuronKernel kernel = find(stage, tile);
  if (kernel == nullptr) throw InternalError(name_of(tile) + " is not compiled");
  check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of " + name_of(tile));
  return attributes;
}

}  // namespace convoy::cuda::sm90
