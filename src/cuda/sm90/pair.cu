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

struct PairLaunch::Ready {
  Stage first, second;
  HaloTile tile;
  PairLayout layout;
  LoadedKernel<PairParams> kernel;
  PairParams params;  // of a run of all images: the addresses of x and y are set last
};

PairLaunch::PairLaunch(const Stage& first, const Stage& second, const HaloTile& tile,
                       const PairLayout& layout, const void* w, const void* w2) {
  PairParams p = parameters(first, second, tile, layout);
  std::string why = encode(halo_w_map(first, tile, layout.first), w, &p.first.w);
  if (why.empty()) why = encode(halo_x_map(first, tile, layout.first, first.c), w, &p.first.x);
  if (why.empty()) why = encode(pair_w_map(second), w2, &p.w2);
  if (why.empty()) why = encode(pair_y_map(second, tile, second.k), w2, &p.y2);
  if (!why.empty())
    throw Error(name_of(tile) + " for " + to_text(first) + " and " + to_text(second) + ": " + why);
  ready_ = std::make_unique<const Ready>(
      Ready{first, second, tile, layout, {find(first, tile), name_of(tile)}, p});
}
PairLaunch::~PairLaunch() = default;

std::string PairLaunch::run(const PairRun& run, cudaStream_t stream) const noexcept {
  const auto& [first, second, tile, layout, kernel, ready] = *ready_;
  PairParams p = ready;
  p.first.bias = run.bias;
  p.bias2 = run.bias2;
  const HaloLayout& l = layout.first;
  const int tiles_n = static_cast<int>((run.n + tile.bn - 1) / tile.bn);
  p.first.tiles = l.k_blocks * l.tiles_x * l.tiles_y * tiles_n;
  std::string why;
  if (run.n == first.n) {
    why = redirect(&p.first.x, run.x);
    if (why.empty()) why = redirect(&p.y2, run.y);
  } else {
    Stage fewer = first, fewer2 = second;
    fewer.n = fewer2.n = run.n;
    why = encode(halo_x_map(fewer, tile, l, first.c), run.x, &p.first.x);
    if (why.empty()) why = encode(pair_y_map(fewer2, tile, second.k), run.y, &p.y2);
  }
  if (!why.empty()) return why;

  const int tiles = p.first.tiles / layout.sharers;
  const int grid = layout.grid < tiles ? layout.grid : tiles;
  const cudaError_t error =
      kernel.launch({grid, pair_threads, layout.shared_bytes, stream, run.overlap_previous}, p);
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
