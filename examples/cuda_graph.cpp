// A stage in a CUDA graph, captured on the caller's own stream.
//
//     cuda_graph [DEVICE]
#include <cuda_runtime_api.h>

#include <convoy/pinned.hpp>
#include <convoy/plan.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

using namespace convoy;

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

/// 0, 1/4, ... 5/4 in f16, in another order for each seed.
void fill(const PinnedTensor& x, unsigned seed) {
  static constexpr std::uint16_t quarters[] = {0x0000, 0x3400, 0x3800, 0x3A00, 0x3C00, 0x3D00};
  for (Index i = 0; i < x.view().elements(); ++i)
    x.data<std::uint16_t>()[i] = quarters[(static_cast<unsigned>(i) * 7 + seed) % 6];
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

  // Page-locked host memory: copies from and to it are asynchronous, so a graph may hold them.
  const PinnedTensor in(DType::f16, x_shape(stage), options.device);
  const PinnedTensor out(DType::f16, y_shape(stage), options.device);
  const Tensor x(DType::f16, x_shape(stage), options.device),
      y(DType::f16, y_shape(stage), options.device);
  const Tensor bias(DType::f32, {stage.k}, options.device);

  check(cudaSetDevice(options.device.index));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  // The graph: pixels to the GPU, the stage, its output back. The operands are bound to it.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  check(
      cudaMemcpyAsync(x.data<void>(), in.data<void>(), x.bytes(), cudaMemcpyHostToDevice, stream));
  plan.run({.x = x, .bias = bias, .y = y}, {stream}).or_throw();
  check(
      cudaMemcpyAsync(out.data<void>(), y.data<void>(), y.bytes(), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));

  // Replays with new pixels, each compared with a run that is called directly.
  int same = 0;
  const int replays = 3;
  for (unsigned seed = 0; seed < replays; ++seed) {
    fill(in, seed);
    check(cudaGraphLaunch(ready, stream));
    check(cudaStreamSynchronize(stream));

    const Tensor direct(DType::f16, y_shape(stage), options.device);
    copy_tensor(in, x, {stream});
    plan.run({.x = x, .bias = bias, .y = direct}, {stream}).or_throw();
    check(cudaStreamSynchronize(stream));  // `to` below copies on the default stream
    const Tensor expected = direct.to(parse_device("cpu"));
    same += std::memcmp(expected.data<void>(), out.data<void>(), expected.bytes()) == 0;
  }
  std::printf("%d of %d replays equal a direct run, bit for bit\n", same, replays);

  check(cudaGraphExecDestroy(ready));
  check(cudaGraphDestroy(graph));
  check(cudaStreamSynchronize(stream));  // a stream is destroyed only when its work is done
  check(cudaStreamDestroy(stream));
  return same == replays ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
