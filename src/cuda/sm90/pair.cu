#include <algorithm>
#include <utility>

#include "core/failure.hpp"
#include "cuda/error.hpp"
#include "cuda/sm90/launching.hpp"
#include "cuda/sm90/pair.cuh"
#include "cuda/sm90/pair.hpp"
#include "cuda/types.cuh"

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
  return for_16_bits(stage.dtype, [&]<class T>() { return find<T>(wanted); });
}

PairParams parameters(const Stage& first, const Stage& second, const PairLayout& layout) {
  PairParams p{};
  p.first = halo_params(first, layout.first);
  p.post2 = post_ops_of(second);
  p.at = layout.second;
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
                       const PairLayout& layout)
    : ready_(new Ready{first,
                       second,
                       tile,
                       layout,
                       {find(first, tile), name_of(tile)},
                       parameters(first, second, layout)}) {}
PairLaunch::~PairLaunch() = default;

void PairLaunch::use(const void* w, const void* w2) {
  auto& [first, second, tile, layout, kernel, p] = *ready_;
  std::string why = encode(halo_w_map(first, tile, layout.first), w, &p.first.w);
  if (why.empty()) why = encode(pair_w_map(second), w2, &p.w2);
  // Any address will do for the other two.
  if (why.empty()) why = encode(halo_x_map(first, tile, layout.first, first.c), w, &p.first.x);
  if (why.empty()) why = encode(pair_y_map(second, tile, second.k), w2, &p.y2);
  if (!why.empty())
    throw DeviceError(name_of(tile) + " for " + to_text(first) + " and " + to_text(second) + ": " +
                      why);
}

std::string PairLaunch::run(const PairRun& run, cudaStream_t stream) const noexcept {
  const auto& [first, second, tile, layout, kernel, ready] = *ready_;
  PairParams p = ready;
  p.first.post.bias = run.bias;
  p.post2.bias = run.bias2;
  const HaloLayout& l = layout.first;
  p.first.tiles = halo_tiles_of(first, tile, l, run.n);
  Stage part = first, part2 = second;
  part.n = part2.n = run.n;
  const bool whole = run.n == first.n;
  std::string why =
      aim(&p.first.x, run.x, whole, [&] { return halo_x_map(part, tile, l, first.c); });
  if (why.empty())
    why = aim(&p.y2, run.y, whole, [&] { return pair_y_map(part2, tile, second.k); });
  if (!why.empty()) return why;
  const int grid = std::min(l.grid, p.first.tiles / l.sharers);
  return launch(kernel, p, grid, pair_threads, layout.shared_bytes, stream, [&] {
    return name_of(tile) + " for " + to_text(first) + " and " + to_text(second);
  });
}

cudaFuncAttributes pair_attributes(const Stage& first, const HaloTile& tile) {
  cudaFuncAttributes attributes{};
  const PairKernel kernel = find(first, tile);
  if (kernel == nullptr) throw InternalError(name_of(tile) + " is not compiled");
  check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of " + name_of(tile));
  return attributes;
}

}  // namespace convoy::cuda::sm90
