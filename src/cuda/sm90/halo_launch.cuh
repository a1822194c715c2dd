// The compiled halo kernels of one type, found by (N, instructions, pool, steps).
#pragma once

#include <utility>

#include "cuda/sm90/halo.cuh"

namespace convoy::cuda::sm90 {

using HaloKernel = void (*)(HaloParams);

/// Null where the combination makes no sense: a pool over images needs two rows and pairs of
/// pixels.
template <class T, int N, int I, int Steps>
HaloKernel halo_of(PoolKind pool) {
  constexpr int groups = N / 8;
  if (pool == PoolKind::none) return halo<T, N, I, PoolKind::none, Steps>;
  if constexpr (groups % 2 == 0) {
    if (pool == PoolKind::pixels) return halo<T, N, I, PoolKind::pixels, Steps>;
    if constexpr (I % 2 == 0) return halo<T, N, I, PoolKind::images, Steps>;
  }
  return nullptr;
}

template <class T, int N, int I>
HaloKernel halo_of(PoolKind pool, int steps) {
  if constexpr (serves_narrow({N, I})) {
    if (steps == 1) return halo_of<T, N, I, 1>(pool);
    if (steps == 2) return halo_of<T, N, I, 2>(pool);
  }
  return halo_of<T, N, I, 4>(pool);
}

template <class T>
HaloKernel find_halo(Accumulator wanted, PoolKind pool, int steps) {
  HaloKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    (void)((accumulators[Entry] == wanted &&
            ((found =
                  halo_of<T, accumulators[Entry].n, accumulators[Entry].instructions>(pool, steps)),
             true)) ||
           ...);
  }
  (std::make_index_sequence<accumulators.size()>{});
  return found;
}

}  // namespace convoy::cuda::sm90
