// From NCHW to NHWC and back, near the speed of a copy.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "convoy/stage.hpp"

namespace convoy::cuda {

/// `batch` matrices of 16-bit elements: to[column][row] = from[row][column], each matrix dense,
/// matrices a stride (in elements) apart. NCHW to NHWC has C rows and H*W columns, the way back
/// H*W rows and C columns.
struct Transpose {
  const void* from = nullptr;
  void* to = nullptr;
  Index batch = 0, rows = 0, columns = 0;
  Index from_stride = 0, to_stride = 0;
};

/// Loads the kernels on the current device. To be called once before transpose_launch; returns an
/// empty string, or what went wrong.
std::string transpose_ready();

/// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string, or
/// what went wrong.
std::string transpose_launch(const Transpose& what, cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
