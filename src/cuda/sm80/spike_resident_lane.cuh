// Kernel `spike_resident`: a lane on the device, and the kernel's function. What it is compiled
// for, any network or a known one, is a file each, so that they compile side by side.
#pragma once

#include <cuda_fp16.h>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm80/spike_resident_nets.hpp"
#include "cuda/sm80/spike_resident_run.cuh"

namespace convoy::cuda::sm80 {

/// A lane of a warp on the device.
struct LaneOnDevice {
  unsigned char* shared;
  int thread, lane, warp_of_cta;

  __device__ int threads() const { return resident_warps * 32; }
  __device__ int warp() const { return warp_of_cta; }
  __device__ int warps() const { return resident_warps; }

  /// The lane's part of the four 8x8 blocks whose rows, of shared memory, the lanes give.
  __device__ void matrix(std::uint32_t (&x)[4], int row) const {
    ptx::ldmatrix_x4(x, static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + row);
  }
  __device__ void multiply_add(float (&sums)[4], const std::uint32_t (&x)[4],
                               const std::uint32_t (&w)[2]) const {
    ptx::mma_m16n8k16_f16(sums, x, w[0], w[1]);
  }
  /// The same, of unit 0 only.
  __device__ void multiply_add_half(float (&sums)[4], const std::uint32_t (&x)[4],
                                    std::uint32_t w) const {
    ptx::mma_m16n8k8_f16(sums, x[0], x[1], w);
  }
  __device__ std::uint32_t exchange(std::uint32_t bits, int lanes) const {
    return __shfl_xor_sync(~0U, bits, lanes);
  }
  __device__ void sync_team(int team, int threads) const {
    if (threads == 32)
      __syncwarp();
    else
      ptx::bar_sync(1 + team, threads);
  }
  __device__ void sync_cta() const { __syncthreads(); }
  __device__ std::uint32_t half_of(float value) const {
    return __half_as_ushort(__float2half_rn(value));
  }
  /// Pixels 2 * Pair and 2 * Pair + 1 of four as f16 values. 1024 + u is the f16 number of bits
  /// 0x6400 + u.
  template <int Pair>
  __device__ std::uint32_t two_pixels(std::uint32_t four) const {
    const std::uint32_t bits = __byte_perm(four, 0x64, Pair == 0 ? 0x4140 : 0x4342);
    __half2 pair = *reinterpret_cast<const __half2*>(&bits);
    pair = __hsub2(pair, __float2half2_rn(1024.0F));
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  __device__ void prefetch(const void* from) const { ptx::prefetch_l1(from); }
  /// From global or shared memory.
  __device__ WeightWords either(const WeightWords* from) const {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    return {{words.x, words.y}, {words.z, words.w}};
  }
  template <class T>
  __device__ T from_global(const T* from) const {
    return __ldg(from);
  }

  /// 16 bytes to shared memory, in the background.
  __device__ void fetch16(int to, const void* from) const {
    ptx::cp_async_16(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + to, from);
  }
  /// Those begun since the last one make a fetch.
  __device__ void end_fetch() const { ptx::cp_async_commit(); }
  /// Waits for this lane's part of all fetches but the last `Left`.
  template <int Left>
  __device__ void wait_for_fetches() const {
    ptx::cp_async_wait<Left>();
  }
  __device__ void wait_for_previous_launch() const {
#if __CUDA_ARCH__ >= 900
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
#endif
  }
};

template <class Net>
__global__ void __launch_bounds__(resident_warps * 32, 1)
    spike_resident(const __grid_constant__ ResidentParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int thread = static_cast<int>(threadIdx.x);
  // By way of a shuffle the compiler knows that a warp's lanes agree.
  const int warp = __shfl_sync(~0U, thread / 32, 0);
  const LaneOnDevice lane{shared, thread, thread % 32, warp};
  resident_cta<Net>(lane, params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

}  // namespace convoy::cuda::sm80
