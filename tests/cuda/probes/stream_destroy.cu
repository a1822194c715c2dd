// A fault of a driver, without Convoy: streams are destroyed while their second kernel, launched to
// overlap the first, waits for it. docs/trust/guarantees.md tells what follows from it.
//
//   nvcc -arch=sm_90 -o stream_destroy tests/cuda/probes/stream_destroy.cu && ./stream_destroy
//
// Prints `done`, or `stopped` where the device has not come to an end after 10 seconds (seen on an
// H200). With the argument `keep` the streams are destroyed at the end: then it is done everywhere.
#include <cuda_runtime.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <vector>

namespace {

__global__ void first(float* to) {
  asm volatile("griddepcontrol.launch_dependents;");
  const long long end = clock64() + 60000;
  while (clock64() < end) {
  }
  to[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

__global__ void second(float* to) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  to[blockIdx.x * blockDim.x + threadIdx.x] = 2;
}

void launch(void (*kernel)(float*), int grid, cudaStream_t stream, bool overlap, float* to) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, to);
}

}  // namespace

int main(int count, char**) {
  std::signal(SIGALRM, [](int) {
    std::puts("stopped");
    std::fflush(stdout);
    _exit(1);
  });
  alarm(10);
  const bool keep = count > 1;
  float* memory = nullptr;
  if (cudaMalloc(&memory, sizeof(float) * 256 * 2048) != cudaSuccess) return 77;
  std::vector<cudaStream_t> kept;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 8; ++i) {
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      launch(first, 132, stream, false, memory);
      launch(second, 1568, stream, true, memory);
      if (keep)
        kept.push_back(stream);
      else
        cudaStreamDestroy(stream);
    }
    cudaDeviceSynchronize();
  }
  for (cudaStream_t stream : kept) cudaStreamDestroy(stream);
  std::puts("done");
}
