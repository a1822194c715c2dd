#include "activation.hpp"
#include "cuda/activate.cuh"
#include "cuda/error.hpp"

namespace convoy {
namespace {

__global__ void activate_each(cuda::DeviceActivation act, float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = cuda::activate(act, values[i]);
}

}  // namespace

std::vector<float> activated_on_gpu(const Activation& act, const std::vector<float>& values) {
  const cuda::DeviceActivation on_device = cuda::device_activation(act);
  std::vector<float> results = values;
  const std::size_t bytes = values.size() * sizeof(float);
  const int count = static_cast<int>(values.size());
  float* memory = nullptr;
  cuda::check(cudaMalloc(&memory, bytes), "allocating values");
  cuda::check(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyDefault), "copying values");
  activate_each<<<(count + 127) / 128, 128>>>(on_device, memory, count);
  cuda::check(cudaMemcpy(results.data(), memory, bytes, cudaMemcpyDefault), "copying results");
  cuda::check(cudaFree(memory), "freeing values");
  return results;
}

void make_device_activation(const Activation& act) {
  static_cast<void>(cuda::device_activation(act));
}

}  // namespace convoy
