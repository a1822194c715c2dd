// `cutlass_pooled` on CTAs of 128 rows and 64 filters, four warps of 64x32.
#include "teaching/cutlass_pooled/cutlass_pooled_device.cuh"

namespace convoy::cuda::teaching {

std::unique_ptr<CutlassPooledLaunch> cutlass_pooled_128x64(const Stage& stage) {
  using Shape = cutlass::gemm::GemmShape<128, 64, cutlass_pooled_depth>;
  using Warp = cutlass::gemm::GemmShape<64, 32, cutlass_pooled_depth>;
  return std::make_unique<CutlassPooledDevice<Shape, Warp>>(stage);
}

}  // namespace convoy::cuda::teaching
