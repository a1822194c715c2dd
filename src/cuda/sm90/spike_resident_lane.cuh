// Kernel `spike_resident` by wgmma: a lane of a warpgroup on the device, and the kernels' frame.
#pragma once

#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma_registers.cuh"
#include "cuda/sm80/spike_resident_lane.cuh"
#include "cuda/sm80/spike_resident_warpgroup.hpp"

namespace convoy::cuda::sm90 {

inline constexpr int warps_of_cta = sm80::warps_of_warpgroups;

struct LaneOfWarpgroup : sm80::LaneOnDevice {
  __device__ int threads() const { return warps_of_cta * 32; }
  __device__ int warps() const { return warps_of_cta; }

  /// The value in a register, which is not made again where it is used.
  __device__ std::uint32_t kept(std::uint32_t value) const {
    asm volatile("" : "+r"(value));
    return value;
  }
  /// What this lane wrote to shared memory is visible to products behind the next barrier.
  __device__ void publish() const { ptx::fence_proxy_async(); }
  __device__ void begin_products() const { ptx::wgmma_fence(); }
  template <int N>
  __device__ void product(float (&sums)[N / 2], const std::uint32_t (&a)[4], int from, int offset,
                          int unit_bytes, int group_bytes, bool keep) const {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + from;
    const std::uint64_t of =
        ptx::descriptor_of((address >> 4 | unit_bytes << 12) + offset / 16, group_bytes >> 4);
    ptx::WgmmaOfRegisters<N>::mma(sums, a, of, keep ? 1 : 0);
  }
  __device__ void end_products() const { ptx::wgmma_commit(); }
  template <int Sums>
  __device__ void wait_for_products(float (&sums)[Sums]) const {
    ptx::wgmma_wait<0>();
    ptx::touch(sums);
  }
  __device__ float exchange_float(float value, int lanes) const {
    return __shfl_xor_sync(~0U, value, lanes);
  }
};

/// This thread's, of a CTA's shared memory.
__device__ __forceinline__ LaneOfWarpgroup lane_of_warpgroup(unsigned char* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = __shfl_sync(~0U, thread / 32, 0);  // as src/cuda/sm80 has it
  return {{shared, thread, thread % 32, warp}};
}

}  // namespace convoy::cuda::sm90
