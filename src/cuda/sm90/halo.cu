#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/halo.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

using HaloKernel = void (*)(HaloParams);
HaloKernel find_halo_f16(Accumulator wanted, PoolKind pool, int steps);   // halo_f16.cu
HaloKernel find_halo_bf16(Accumulator wanted, PoolKind pool, int steps);  // halo_bf16.cu

namespace {

HaloKernel find(const Stage& stage, const HaloTile& tile) {
  const PoolKind pool = !stage.pool                   ? PoolKind::none
                        : tile.inner == Inner::images ? PoolKind::images
                                                      : PoolKind::pixels;
  const Accumulator wanted{tile.instruction_n(), tile.instructions()};
  const auto find_halo = stage.dtype == DType::bf16 ? find_halo_bf16 : find_halo_f16;
  return find_halo(wanted, pool, halo_steps(stage, tile));
}

}  // namespace

HaloParams halo_params(const Stage& stage, const HaloTile& tile, const HaloLayout& l) noexcept {
  HaloParams p{};
  p.act = clamp_of(stage.act);
  p.k = static_cast<int>(stage.k);
  p.chunks = l.chunks;
  p.views = l.views;
  p.slot_chunks = l.slot_chunks;
  p.slot_views = l.slot_views;
  p.load_chunks = l.load_chunks;
  p.chunk_channels = whole_chunks(stage) ? 0 : 64;
  p.taps = l.slot_taps();
  p.slab_taps = l.slab_taps;
  p.slabs = l.slabs_a_tile();
  p.k_blocks = Divisor(l.k_blocks);
  p.tiles_x = Divisor(l.tiles_x);
  p.tiles_y = Divisor(l.tiles_y);
  p.cta_channels = tile.cta_channels();
  p.cta_w = tile.cta_columns();
  p.cta_h = tile.cta_rows();
  p.cta_n = tile.bn;
  p.step_w = static_cast<int>(stage.stride.w);
  p.step_h = static_cast<int>(stage.stride.h);
  p.first_w = -static_cast<int>(stage.pad.left);
  p.first_h = -static_cast<int>(stage.pad.top);
  p.window = stage.pool ? 2 : 1;
  p.images = tile.inner == Inner::images;
  p.pingpong = tile.schedule == Schedule::pingpong;
  p.resident = tile.resident;
  p.half = tile.half;
  p.warpgroup_channels = tile.schedule == Schedule::channels ? 64 : 0;
  const bool split = tile.schedule == Schedule::rows, line = tile.inner == Inner::line;
  p.warpgroup_rows = split && !line ? tile.bh : 0;
  p.warpgroup_columns = split && line ? tile.bw : 0;
  p.x_slots = l.x_slots;
  p.w_slots = l.w_slots;
  p.x_slot = l.x_slot;
  p.w_slot = l.w_slot;
  p.early_slabs = l.early_slabs;
  p.x_bytes = l.x_bytes * l.slot_chunks * l.slot_views;
  p.x_box = l.x_box;
  const int tile_x = l.slots_a_tile(), tile_w = l.slabs_a_tile();
  p.skip_x = tile_x % l.x_slots;
  p.skip_x_odd = tile_x / l.x_slots & 1;
  p.skip_w = tile_w % l.w_slots;
  p.skip_w_odd = tile_w / l.w_slots & 1;
  p.w_offset = l.x_slots * l.x_slot;
  p.staging_offset = p.w_offset + l.w_slots * l.w_slot;
  p.staging = l.staging;
  p.store_buffers = l.store_buffers;
  p.barrier_offset = p.staging_offset + 2 * l.store_buffers * l.staging;
  p.group_stride = l.group_stride;
  p.instruction_stride = l.instruction_stride;
  p.warpgroup_stride = l.warpgroup_stride;
  p.store_i = l.store_i;
  p.store_j = l.store_j;
  p.stored_pixels = l.stored_pixels;
  if (!stage.pool) {
    p.part_y = p.images ? 1 : 0;
    p.part_x = tile.inner == Inner::pixels && tile.bw > 8 ? 8 : 0;
    p.part_n = !p.images && tile.bn > 1 ? 1 : 0;
    const int pieces = store_pieces(tile.instruction_n());
    p.piece_x = tile.inner == Inner::pixels ? 0 : tile.bw / pieces;
    p.piece_y = tile.inner == Inner::pixels ? tile.bh / pieces : 0;
  }
  for (std::size_t i = 0; i < max_taps; ++i) {
    p.view[i] = l.view[i];
    p.tap_shift[i] = l.tap_shift[i];
  }
  return p;
}

struct HaloLaunch::Ready {
  Stage stage;
  HaloTile tile;
  HaloLayout layout;
  LoadedKernel<HaloParams> kernel;
  HaloParams params;  // of a run of all images, with dense x and y: their addresses are set last
};

HaloLaunch::HaloLaunch(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                       const void* w) {
  HaloParams p = halo_params(stage, tile, layout);
  std::string why = encode(halo_w_map(stage, tile, layout), w, &p.w);
  if (why.empty()) why = encode(halo_x_map(stage, tile, layout, stage.c), w, &p.x);
  if (why.empty()) why = encode(halo_y_map(stage, tile, stage.k), w, &p.y);
  if (!why.empty()) throw Error("halo " + tile.name() + " for " + to_text(stage) + ": " + why);
  ready_ = std::make_unique<const Ready>(
      Ready{stage, tile, layout, {find(stage, tile), "halo " + tile.name()}, p});
}
HaloLaunch::~HaloLaunch() = default;

std::string HaloLaunch::run(const HaloRun& run, cudaStream_t stream) const noexcept {
  const auto& [stage, tile, layout, kernel, ready] = *ready_;
  HaloParams p = ready;
  p.bias = run.bias;
  p.tiles = halo_tiles_of(stage, tile, layout, run.n);
  const auto part = [&] {
    Stage fewer = stage;
    fewer.n = run.n;
    return fewer;
  };
  const bool whole = run.n == stage.n;
  std::string why = whole && run.x_pixel_stride == stage.c
                        ? redirect(&p.x, run.x)
                        : encode(halo_x_map(part(), tile, layout, run.x_pixel_stride), run.x, &p.x);
  if (why.empty())
    why = whole && run.y_pixel_stride == stage.k
              ? redirect(&p.y, run.y)
              : encode(halo_y_map(part(), tile, run.y_pixel_stride), run.y, &p.y);
  if (!why.empty()) return why;

  const int grid = layout.grid < p.tiles || tile.resident ? layout.grid : p.tiles;
  const cudaError_t error =
      kernel.launch({grid, halo_threads, layout.shared_bytes, stream, run.overlap_previous}, p);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching halo " + tile.name() + " for " + to_text(stage));
}

cudaFuncAttributes halo_attributes(const Stage& stage, const HaloTile& tile) {
  cudaFuncAttributes attributes{};
  const HaloKernel kernel = find(stage, tile);
  if (kernel == nullptr) throw Error("halo " + tile.name() + " is not compiled");
  check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of halo " + tile.name());
  return attributes;
}

}  // namespace convoy::cuda::sm90
