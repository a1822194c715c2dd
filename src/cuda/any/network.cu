// What surrounds the layers of a network: pixels to what the first layer reads, the mean over the
// steps, labels. One element a thread; memory bounds them.
#include "core/gpu.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/memory.hpp"
#include "math/half.hpp"

namespace convoy::cuda {
namespace {

constexpr int of_cta = 256;

__device__ Index element() {
  return static_cast<Index>(blockIdx.x) * of_cta + threadIdx.x;
}

__global__ void values_of_pixels(const std::uint8_t* from, Index count, Index channels,
                                 const float* values, float* to) {
  const Index i = element();
  if (i < count) to[i] = values[i % channels * 256 + from[i]];
}

__global__ void normalise(const float* from, Index count, Index channels, const float* mean_and_std,
                          float* to) {
  const Index i = element();
  if (i >= count) return;
  const float* const mean = mean_and_std + i % channels;
  to[i] = __fdiv_rn(__fsub_rn(from[i], mean[0]), mean[channels]);
}

__global__ void mean_of_steps(DType type, const void* outputs, Index steps, Index count,
                              float* mean) {
  const Index i = element();
  if (i >= count) return;
  float sum = math::load(type, outputs, i);
  for (Index t = 1; t < steps; ++t) sum += math::load(type, outputs, t * count + i);
  mean[i] = steps > 1 ? __fdiv_rn(sum, static_cast<float>(steps)) : sum;
}

__global__ void labels_of(const float* mean, Index n, Index classes, std::int32_t* labels) {
  const Index i = element();
  if (i >= n) return;
  const float* const values = mean + i * classes;
  Index best = 0;
  for (Index k = 1; k < classes; ++k)
    if (values[k] > values[best]) best = k;
  labels[i] = static_cast<std::int32_t>(best);
}

/// An element a thread.
Launch elements(Index count, Stream stream) {
  return {static_cast<int>((count + of_cta - 1) / of_cta), of_cta, 0,
          static_cast<cudaStream_t>(stream.handle)};
}

}  // namespace
}  // namespace convoy::cuda

namespace convoy::gpu {

void values_of_pixels(Device device, Stream stream, const std::uint8_t* from, Index count,
                      Index channels, const float* values, float* to) {
  const cuda::OnDevice on(device.index);
  cuda::check(cuda::launch(cuda::values_of_pixels, cuda::elements(count, stream), from, count,
                           channels, values, to),
              "launching the conversion of a network's pixels");
}

void normalise(Device device, Stream stream, const float* from, Index count, Index channels,
               const float* mean_and_std, float* to) {
  const cuda::OnDevice on(device.index);
  cuda::check(cuda::launch(cuda::normalise, cuda::elements(count, stream), from, count, channels,
                           mean_and_std, to),
              "launching the conversion of a network's images");
}

void mean_and_labels(Device device, Stream stream, DType type, const void* outputs, Index steps,
                     Index n, Index classes, float* mean, std::int32_t* labels) {
  const cuda::OnDevice on(device.index);
  const Index count = n * classes;
  cuda::check(cuda::launch(cuda::mean_of_steps, cuda::elements(count, stream), type, outputs, steps,
                           count, mean),
              "launching the mean over a network's steps");
  cuda::check(cuda::launch(cuda::labels_of, cuda::elements(n, stream), mean, n, classes, labels),
              "launching the labels of a network");
}

}  // namespace convoy::gpu
