// A tiny kernel that is not ours to overlap with: what stands between two launches of an
// application.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace convoy::cuda {

/// Enqueues a kernel that writes one word of device memory, launched the ordinary way: it begins
/// when what is before it has ended, and what is behind it begins when it has ended.
cudaError_t launch_foreign(std::uint32_t* word, cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
