// halo with time stamps: the same code, with its Stamps in place of NoStamps.
#pragma once

#include "cuda/sm90/halo.cuh"
#include "cuda/sm90/halo_trace.hpp"

namespace convoy::cuda::sm90 {

struct TracedHaloParams : HaloParams {
  StampBuffer to;
};
using TracedHaloKernel = void (*)(TracedHaloParams);

/// Null where the combination is not compiled with stamps.
TracedHaloKernel find_traced_halo_f16(Accumulator wanted, PoolKind pool);  // halo_trace_f16.cu

// The tracks of a CTA: its consumers, then its producers (halo_tracks).
template <class T, int N, int I, PoolKind Pool>
requires HaloAccumulator<N, I, Pool, row_steps> __global__ void __launch_bounds__(halo_threads, 1)
    halo_traced(const __grid_constant__ TracedHaloParams p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool consumer = warp < consumer_warps;
  Stamps stamps(p.to, consumer ? warp / warpgroup_warps : 2 + warp % warpgroup_warps,
                consumer ? leads_warpgroup() : threadIdx.x % 32 == 0);
  run_cta<T, N, I, row_steps>(
      p,
      [&](const Sum<T>(&d)[I][N / 2], const float(&bias)[2], const Place& at, std::uint32_t staging,
          int g) { store_tile<T, N, I, Pool>(p, d, bias, at, staging, g); },
      stamps);
}

}  // namespace convoy::cuda::sm90
