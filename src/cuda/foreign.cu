#include "cuda/foreign.hpp"
#include "cuda/launch.hpp"

namespace convoy::cuda {
namespace {

__global__ void write_word(std::uint32_t* word) {
  if (threadIdx.x == 0) *word = 1;
}

}  // namespace

cudaError_t launch_foreign(std::uint32_t* word, cudaStream_t stream) noexcept {
  return launch(write_word, {1, 128, 0, stream}, word);
}

}  // namespace convoy::cuda
