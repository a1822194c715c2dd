// The compiled halo kernels of one type, found by (N, instructions, pool).
#pragma once

#include <utility>

#include "cuda/sm90/halo.cuh"

namespace convoy::cuda::sm90 {

using HaloKernel = void (*)(HaloParams);

/// Null where the combination makes no sense: a pool over images needs two rows and pairs of
/// pixels.
template <class T, int N, int I>
HaloKernel halo_of(PoolKind pool) {
  constexpr int groups = N / 8;
  if (pool == PoolKind::none) return halo<T, N, I, PoolKind::none>;
  if constexpr (groups % 2 == 0) {
    if (pool == PoolKind::pixels) return halo<T, N, I, PoolKind::pixels>;
    if constexpr (I % 2 == 0) return halo<T, N, I, PoolKind::images>;
  }
  return nullptr;
}

template <class T>
HaloKernel find_halo(Accumulator wanted, PoolKind pool) {
  HaloKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    (void)((accumulators[Entry] == wanted &&
            ((found = halo_of<T, accumulators[Entry].n, accumulators[Entry].instructions>(pool)),
             true)) ||
           ...);
  }
  (std::make_index_sequence<accumulators.size()>{});
  return found;
}

}  // namespace convoy::cuda::sm90
