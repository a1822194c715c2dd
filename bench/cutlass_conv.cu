// CUTLASS 2.x's own convolution for Ampere's tensor cores, with bias and ReLU in its epilogue and
// no pool: a peer (bench/peers_cutlass.py), compiled once a tile as a library of its own. And the
// passes that its unfused pipeline has beside it: ReLU and a pool of 2x2.
#include <cuda_fp16.h>
#include <cutlass/conv/kernel/default_conv2d_fprop.h>
#include <cutlass/epilogue/thread/linear_combination_relu.h>
#include <cutlass/numeric_types.h>

#include <limits>
// After the kernel's, whose functions it uses.
#include <cutlass/conv/device/implicit_gemm_convolution.h>

namespace {

using cutlass::half_t;
using cutlass::gemm::GemmShape;
using Nhwc = cutlass::layout::TensorNHWC;

// TILE_M, TILE_N: rows and filters of a CTA, 64 deep; WARP_N: filters of a warp of 64 rows; STAGES
// of the pipeline. All come from cmake/cutlass.cmake.
using Kernel = cutlass::conv::kernel::DefaultConv2dFprop<
    half_t, Nhwc, half_t, Nhwc, half_t, Nhwc, float, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, GemmShape<TILE_M, TILE_N, 64>, GemmShape<64, WARP_N, 64>,
    GemmShape<16, 8, 16>, cutlass::epilogue::thread::LinearCombinationRelu<half_t, 8, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>, STAGES,
    cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized>::Kernel;
using Convolution = cutlass::conv::device::ImplicitGemmConvolution<Kernel>;

Nhwc dense(int h, int w, int c) {
  return {c, c * w, c * w * h};
}

__global__ void relu(const uint4* x, uint4* y, int pieces) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pieces) return;
  uint4 eight = x[i];
  auto* const two = reinterpret_cast<__half2*>(&eight);
  for (int j = 0; j < 4; ++j) two[j] = __hmax2_nan(two[j], __half2{});
  y[i] = eight;
}

// A thread eight channels of a pooled pixel; x [N, 2 * P, 2 * Q, 8 * pieces].
__global__ void pool(const uint4* x, uint4* y, int windows, int q, int pieces) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= windows * pieces) return;
  const int window = i / pieces, row = window / q, column = window - row * q;
  const uint4* const from = x + (4LL * row * q + 2 * column) * pieces + (i - window * pieces);
  uint4 most = from[0];
  for (const int at : {pieces, 2 * q * pieces, (2 * q + 1) * pieces}) {
    const uint4 other = from[at];
    for (int j = 0; j < 4; ++j) {
      auto& a = reinterpret_cast<__half2*>(&most)[j];
      a = __hmax2_nan(a, reinterpret_cast<const __half2*>(&other)[j]);
    }
  }
  y[i] = most;
}

}  // namespace

extern "C" {

/// sizes: n, h, w, c, k, r, s, p, q, pad top, pad left, stride h, w, dilation h, w. All f16; bias
/// may be null. 0, or CUTLASS's status.
__attribute__((visibility("default"))) int cutlass_conv(const int* sizes, const void* x,
                                                        const void* w, const void* bias, void* y,
                                                        int with_relu, cudaStream_t stream) {
  const cutlass::conv::Conv2dProblemSize problem(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4],
                                                 sizes[5], sizes[6], sizes[7], sizes[8], sizes[9],
                                                 sizes[10], sizes[11], sizes[12], sizes[13],
                                                 sizes[14], cutlass::conv::Mode::kCrossCorrelation);
  const auto of = [](const void* data) { return static_cast<half_t*>(const_cast<void*>(data)); };
  // The bias is a source operand whose pixels all lie in one place.
  const float threshold = with_relu != 0 ? 0.0F : -std::numeric_limits<float>::infinity();
  typename Convolution::Arguments arguments(
      problem, {of(x), dense(problem.H, problem.W, problem.C)},
      {of(w), dense(problem.R, problem.S, problem.C)}, {of(bias), Nhwc(0, 0, 0)},
      {of(y), dense(problem.P, problem.Q, problem.K)},
      {1.0F, bias != nullptr ? 1.0F : 0.0F, threshold});
  Convolution convolution;
  cutlass::Status status = Convolution::can_implement(arguments);
  if (status == cutlass::Status::kSuccess)
    status = convolution.initialize(arguments, nullptr, stream);
  if (status == cutlass::Status::kSuccess) status = convolution.run(stream);
  return static_cast<int>(status);
}

__attribute__((visibility("default"))) int pass_relu(const void* x, void* y, int elements,
                                                     cudaStream_t stream) {
  const int pieces = elements / 8;
  relu<<<(pieces + 255) / 256, 256, 0, stream>>>(static_cast<const uint4*>(x),
                                                 static_cast<uint4*>(y), pieces);
  return static_cast<int>(cudaGetLastError());
}

/// windows: N * P * Q of y, whose rows have q; k channels.
__attribute__((visibility("default"))) int pass_pool(const void* x, void* y, int windows, int q,
                                                     int k, cudaStream_t stream) {
  const int all = windows * (k / 8);
  pool<<<(all + 255) / 256, 256, 0, stream>>>(static_cast<const uint4*>(x), static_cast<uint4*>(y),
                                              windows, q, k / 8);
  return static_cast<int>(cudaGetLastError());
}

}  // extern "C"
