#include "core/failure.hpp"
#include "cuda/error.hpp"
#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/halo.hpp"
#include "cuda/sm90/launching.hpp"
#include "cuda/types.cuh"

namespace convoy::cuda::sm90 {

using HaloKernel = void (*)(HaloParams);
HaloKernel find_halo_f16(Accumulator wanted, PoolKind pool, int steps);   // halo_f16.cu
HaloKernel find_halo_bf16(Accumulator wanted, PoolKind pool, int steps);  // halo_bf16.cu
HaloKernel find_halo_sums_f16(Accumulator wanted);                        // and so on
HaloKernel find_halo_sums_bf16(Accumulator wanted);

namespace {

HaloKernel find(const Stage& stage, const HaloTile& tile) {
  const PoolKind pool = pool_kind(stage, tile);
  const Accumulator wanted{tile.instruction_n(), tile.instructions()};
  return for_16_bits(stage.dtype, [&]<class T>() {
    constexpr bool half = std::is_same_v<T, __half>;
    if (gives_sums(stage)) return (half ? find_halo_sums_f16 : find_halo_sums_bf16)(wanted);
    const auto find_halo = half ? find_halo_f16 : find_halo_bf16;
    return find_halo(wanted, pool, halo_steps(stage, tile));
  });
}

}  // namespace

PoolKind pool_kind(const Stage& stage, const HaloTile& tile) {
  if (!stage.pool) return PoolKind::none;
  return tile.inner == Inner::images ? PoolKind::images : PoolKind::pixels;
}

std::string encode_maps(const Stage& of_x, const Stage& stage, const HaloTile& tile,
                        const HaloLayout& layout, const void* w, HaloParams& p) {
  std::string why = encode(halo_w_map(stage, tile, layout), w, &p.w);
  // Any address will do for the other two.
  if (why.empty()) why = encode(halo_x_map(of_x, tile, layout, stage.c), w, &p.x);
  if (why.empty()) why = encode(halo_y_map(stage, tile, stage.k), w, &p.y);
  return why;
}

HaloParams halo_params(const Stage& stage, const HaloLayout& layout) {
  HaloParams p{};
  p.post = post_ops_before_neuron(stage);  // what a neuron gives is done: spikes
  p.at = layout;
  p.by_k = Divisor(layout.k_blocks);
  p.by_x = halo_across(layout);
  p.by_y = Divisor(layout.tiles_y);
  p.slot_taps = layout.slot_taps();
  p.slabs = layout.slabs_a_tile();
  return p;
}

struct HaloLaunch::Ready {
  Stage stage;
  HaloTile tile;
  HaloLayout layout;
  LoadedKernel<HaloParams> kernel;
  HaloParams params;  // of a run of all images, with dense x and y: their addresses are set last
};

HaloLaunch::HaloLaunch(const Stage& stage, const HaloTile& tile, const HaloLayout& layout)
    : ready_(new Ready{stage,
                       tile,
                       layout,
                       {find(stage, tile), "halo " + tile.name()},
                       halo_params(stage, layout)}) {}
HaloLaunch::~HaloLaunch() = default;

void HaloLaunch::use(const void* w) {
  auto& [stage, tile, layout, kernel, p] = *ready_;
  const std::string why = encode_maps(stage, stage, tile, layout, w, p);
  if (!why.empty())
    throw DeviceError("halo " + tile.name() + " for " + to_text(stage) + ": " + why);
}

std::string HaloLaunch::aim(const Run& run, HaloParams& p, int& grid) const noexcept {
  const auto& [stage, tile, layout, kernel, ready] = *ready_;
  p = ready;
  p.post.bias = run.bias;
  p.tiles = halo_tiles_of(stage, tile, layout, run.n);
  Stage part = stage;
  part.n = run.n;
  const bool whole = run.n == stage.n;
  std::string why = sm90::aim(&p.x, run.x, whole && run.x_pixel_stride == stage.c,
                              [&] { return halo_x_map(part, tile, layout, run.x_pixel_stride); });
  if (why.empty())
    why = sm90::aim(&p.y, run.y, whole && run.y_pixel_stride == stage.k,
                    [&] { return halo_y_map(part, tile, run.y_pixel_stride); });
  grid = layout.grid < p.tiles || tile.resident ? layout.grid : p.tiles;
  return why;
}

std::string HaloLaunch::run(const Run& run, cudaStream_t stream) const noexcept {
  const auto& [stage, tile, layout, kernel, ready] = *ready_;
  HaloParams p;
  int grid = 0;
  std::string why = aim(run, p, grid);
  if (!why.empty()) return why;
  return launch(kernel, p, grid, halo_threads, layout.shared_bytes, stream,
                [&] { return "halo " + tile.name() + " for " + to_text(stage); });
}

cudaFuncAttributes halo_attributes(const Stage& stage, const HaloTile& tile) {
  cudaFuncAttributes attributes{};
  const HaloKernel kernel = find(stage, tile);
  if (kernel == nullptr) throw InternalError("halo " + tile.name() + " is not compiled");
  check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of halo " + tile.name());
  return attributes;
}

}  // namespace convoy::cuda::sm90
