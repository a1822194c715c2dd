#include <utility>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/sm90/pair.cuh"
#include "cuda/sm90/pair.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {
namespace {

using PairKernel = void (*)(PairParams);

template <class T>
PairKernel find(Accumulator wanted) {
  PairKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    (void)((pair_accumulators[Entry] == wanted &&
            ((found = pair<T, pair_accumulators[Entry].n, pair_accumulators[Entry].instructions>),
             true)) ||
           ...);
  }
  (std::make_index_sequence<pair_accumulators.size()>{});
  return found;
}

PairKernel find(const Stage& stage, const HaloTile& tile) {
  const Accumulator wanted{tile.instruction_n(), tile.instructions()};
  return stage.dtype == DType::bf16 ? find<__nv_bfloat16>(wanted) : find<__half>(wanted);
}

constexpr int barrier_bytes = 1024;

PairParams parameters(const Stage& first, const Stage& second, const HaloTile& tile,
                      const PairLayout& l) {
  PairParams p{};
  p.first = halo_params(first, tile, l.first);
  p.first.sharers = l.sharers;
  if (l.sharers == 2) p.first.skip_x = p.first.skip_x_odd = 0;  // both walk over every box
  p.act2 = clamp_of(second.act);
  p.k2 = static_cast<int>(second.k);
  p.blocks = l.blocks;
  p.areas = l.areas;
  p.window_i = l.window_i;
  p.window_j = l.window_j;
  p.w2_slot = l.w2_slot;
  p.w2_slots = l.w2_slots;
  p.w2_resident = l.blocks <= l.w2_slots;
  p.staging2 = l.staging2;
  p.w2_offset = p.first.barrier_offset + barrier_bytes;
  p.staging2_offset = p.w2_offset + l.w2_slots * l.w2_slot;
  p.shrink = second.pool ? 4 : 2;
  p.log2_across = tile.bw > 8 ? 2 : 1;
  return p;
}

std::string name_of(const HaloTile& tile) {
  return "pair " + tile.name();
}

}  // namespace

std::string pair_ready(const Stage& first, const HaloTile& tile) {
  const PairKernel kernel = find(first, tile);
  if (kernel == nullptr) return name_of(tile) + " is not compiled";
  return describe(make_ready(kernel), "loading " + name_of(tile));
}

std::string pair_launch(const Stage& first, const Stage& second, const HaloTile& tile,
                        const PairLayout& layout, const PairRun& run,
                        cudaStream_t stream) noexcept {
  const PairKernel kernel = find(first, tile);
  if (kernel == nullptr) return name_of(tile) + " is not compiled";
  Stage part = first, part2 = second;
  part.n = part2.n = run.n;
  PairParams p = parameters(first, second, tile, layout);
  p.first.bias = run.bias;
  p.bias2 = run.bias2;
  const HaloLayout& l = layout.first;
  const int tiles_n = static_cast<int>((run.n + tile.bn - 1) / tile.bn);
  p.first.tiles = l.k_blocks * l.tiles_x * l.tiles_y * tiles_n;
  std::string why = encode(halo_x_map(part, tile, l, run.x_pixel_stride), run.x, &p.first.x);
  if (why.empty()) why = encode(halo_w_map(part, tile, l), run.w, &p.first.w);
  if (why.empty()) why = encode(pair_w_map(part2), run.w2, &p.w2);
  if (why.empty()) why = encode(pair_y_map(part2, tile, run.y_pixel_stride), run.y, &p.y2);
  if (!why.empty()) return why;

  const int tiles = p.first.tiles / layout.sharers;
  const int grid = layout.grid < tiles ? layout.grid : tiles;
  const cudaError_t error =
      launch(kernel, {grid, pair_threads, layout.shared_bytes, stream, run.overlap_previous}, p);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(
      error, "launching " + name_of(tile) + " for " + to_text(first) + " and " + to_text(second));
}

cudaFuncAttributes pair_attributes(const Stage& first, const HaloTile& tile) {
  cudaFuncAttributes attributes{};
  const PairKernel kernel = find(first, tile);
  if (kernel == nullptr) throw Error(name_of(tile) + " is not compiled");
  check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of " + name_of(tile));
  return attributes;
}

}  // namespace convoy::cuda::sm90
