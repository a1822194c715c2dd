#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/sm80/spike_resident.hpp"
#include "cuda/sm80/spike_resident_run.cuh"

namespace convoy::cuda::sm80 {
namespace {

/// A lane of a warp on the device.
struct LaneOnDevice {
  unsigned char* shared;
  int thread, lane;

  __device__ int threads() const { return resident_warps * 32; }
  __device__ int warp() const { return thread / 32; }
  __device__ int warps() const { return resident_warps; }

  /// The lane's part of the four 8x8 blocks whose rows, of shared memory, the lanes give.
  __device__ void matrix(std::uint32_t (&x)[4], int row) const {
    ptx::ldmatrix_x4(x, static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + row);
  }
  __device__ void multiply_add(float (&sums)[4], const std::uint32_t (&x)[4],
                               const std::uint32_t (&w)[2]) const {
    ptx::mma_m16n8k16_f16(sums, x, w[0], w[1]);
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
  /// Two pixels, each less 127.5, as f16 values. 1024 + u is the f16 number of bits 0x6400 + u.
  __device__ std::uint32_t centred(std::uint32_t first, std::uint32_t second) const {
    const std::uint32_t bits = 0x64006400U | first | second << 16;
    __half2 pair = *reinterpret_cast<const __half2*>(&bits);
    pair = __hadd2(__hsub2(pair, __float2half2_rn(1152.0F)), __float2half2_rn(0.5F));
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  __device__ void prefetch(const void* from) const { ptx::prefetch_l1(from); }
  __device__ WeightWords from_global(const WeightWords* from) const {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
    return {{words.x, words.y}, {words.z, words.w}};
  }
  template <class T>
  __device__ T from_global(const T* from) const {
    return __ldg(from);
  }
};

__global__ void __launch_bounds__(resident_warps * 32)
    spike_resident(const __grid_constant__ ResidentParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int thread = static_cast<int>(threadIdx.x);
  const LaneOnDevice lane{shared, thread, thread % 32};
  resident_cta(lane, params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

}  // namespace

struct ResidentLaunch::Ready {
  LoadedKernel<ResidentParams> kernel;
};

ResidentLaunch::ResidentLaunch() : ready_(new Ready{{spike_resident, "spike_resident"}}) {}
ResidentLaunch::~ResidentLaunch() = default;

std::string ResidentLaunch::run(const ResidentParams& params, int grid,
                                cudaStream_t stream) const noexcept {
  const int ctas = static_cast<int>(std::min<Index>(grid, params.n));
  const cudaError_t error = ready_->kernel.launch({.grid = ctas,
                                                   .threads = resident_warps * 32,
                                                   .shared_bytes = params.at.shared_bytes,
                                                   .stream = stream},
                                                  params);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching spike_resident");
}

}  // namespace convoy::cuda::sm80
