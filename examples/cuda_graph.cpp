// A stage on GPU memory and a stream of your own, captured in a CUDA graph.
//
//     cuda_graph [DEVICE]
#include <cuda_runtime_api.h>

#include <convoy/plan.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

using namespace convoy;

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

struct Free {
  void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
};
/// Memory from cudaMalloc on the current device. Its addresses are multiples of 256.
std::unique_ptr<void, Free> device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  return std::unique_ptr<void, Free>(memory);
}

/// The bits of 0, 1/4, ... 5/4 in f16, in another order for each seed.
void fill(std::vector<std::uint16_t>& x, unsigned seed) {
  static constexpr std::uint16_t quarters[] = {0x0000, 0x3400, 0x3800, 0x3A00, 0x3C00, 0x3D00};
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = quarters[(i * 7 + seed) % 6];
}

}  // namespace

int main(int count, char** words) try {
  PlanOptions options;
  options.device = parse_device(count > 1 ? words[1] : "cuda");
  const Stage stage = parse_stage("f16:n8h56c64k128r3pad1+bias+relu+max2");
  Tensor weights(DType::f32, w_shape(stage));  // weights come from the host
  for (Index i = 0; i < weights.elements(); ++i)
    weights.data<float>()[i] = 0.01F * static_cast<float>(i % 3);
  const Plan plan(stage, weights, options);  // throws Error if there is no GPU or driver
  std::printf("%s on %s\n", to_text(stage).c_str(), to_text(plan.device()).c_str());

  // Views of your own memory: a pointer (also a __half*), a type, a shape and the device.
  check(cudaSetDevice(options.device.index));
  std::vector<std::uint16_t> pixels(8 * 56 * 56 * 64), replayed(8 * 28 * 28 * 128),
      expected(replayed.size());
  const std::vector<float> biases(128, 0.5F);
  const std::size_t x_bytes = 2 * pixels.size(), y_bytes = 2 * replayed.size();
  const auto x_memory = device_memory(x_bytes), y_memory = device_memory(y_bytes),
             direct_memory = device_memory(y_bytes), bias_memory = device_memory(128 * 4);
  const TensorView x(x_memory.get(), DType::f16, {8, 56, 56, 64}, options.device);
  const TensorView y(y_memory.get(), DType::f16, {8, 28, 28, 128}, options.device);
  const TensorView direct(direct_memory.get(), DType::f16, {8, 28, 28, 128}, options.device);
  const TensorView bias(bias_memory.get(), DType::f32, {128}, options.device);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaMemcpyAsync(bias.data, biases.data(), 128 * 4, cudaMemcpyHostToDevice, stream));

  // The graph holds the addresses of the operands.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  plan.run({.x = x, .bias = bias, .y = y}, {stream}).or_throw();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));

  // Two launches, each with new pixels in the same memory, and each compared with a direct run.
  int same = 0;
  for (unsigned launch = 0; launch < 2; ++launch) {
    fill(pixels, launch);
    check(cudaMemcpyAsync(x.data, pixels.data(), x_bytes, cudaMemcpyHostToDevice, stream));
    check(cudaGraphLaunch(ready, stream));
    plan.run({.x = x, .bias = bias, .y = direct}, {stream}).or_throw();
    check(cudaMemcpyAsync(replayed.data(), y.data, y_bytes, cudaMemcpyDeviceToHost, stream));
    check(cudaMemcpyAsync(expected.data(), direct.data, y_bytes, cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    same += replayed == expected;
  }
  std::printf("%d of 2 launches equal a direct run, bit for bit\n", same);

  check(cudaGraphExecDestroy(ready));
  check(cudaGraphDestroy(graph));
  check(cudaStreamSynchronize(stream));  // a stream is destroyed only when its work is done
  check(cudaStreamDestroy(stream));
  return same == 2 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
