// The least that a launch can cost, and a launch that fails.
#pragma once

#include <cuda_runtime_api.h>

namespace convoy {

/// Enqueues a kernel that does nothing on the default stream.
void launch_nothing();

/// Launches it by cuda::launch with more shared memory than any GPU has.
cudaError_t launch_impossible();

}  // namespace convoy
