#include "cuda/sm90/halo_trace.cuh"

namespace convoy::cuda::sm90 {
namespace {

template <int N, int I>
TracedHaloKernel traced_halo_of(PoolKind pool) {
  if (pool == PoolKind::none) return halo_traced<__half, N, I, PoolKind::none>;
  if (pool == PoolKind::pixels) return halo_traced<__half, N, I, PoolKind::pixels>;
  if constexpr (I % 2 == 0) return halo_traced<__half, N, I, PoolKind::images>;
  return nullptr;
}

}  // namespace

TracedHaloKernel find_traced_halo_f16(Accumulator wanted, PoolKind pool) {
  TracedHaloKernel found = nullptr;
  [&]<std::size_t... Entry>(std::index_sequence<Entry...>) {
    (void)((traced_accumulators[Entry] == wanted &&
            ((found = traced_halo_of<traced_accumulators[Entry].n,
                                     traced_accumulators[Entry].instructions>(pool)),
             true)) ||
           ...);
  }
  (std::make_index_sequence<traced_accumulators.size()>{});
  return found;
}

}  // namespace convoy::cuda::sm90
