// From NCHW to NHWC and back, near the speed of a copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <string>

#include "convoy/stage.hpp"
#include "core/size.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {

/// `batch` matrices of elements of 16 or 32 bits: to[column][row] = from[row][column], each matrix
/// dense, matrices a stride (in elements) apart. NCHW to NHWC has C rows and H*W columns, the way
/// back H*W rows and C columns.
struct Transpose {
  const void* from = nullptr;
  void* to = nullptr;
  Index batch = 0, rows = 0, columns = 0;
  Index from_stride = 0, to_stride = 0;
  Index element_bytes = 2;  // 2 or 4
};

/// A CTA takes a tile of this many rows and columns; a launch at most 2^31 - 1 tiles, and matrices
/// of at most as many rows and columns.
constexpr Index transpose_side = 64;
inline bool may_transpose(Index batch, Index rows, Index columns) {
  constexpr Index most = std::numeric_limits<std::int32_t>::max();
  const Size tiles =
      Size(batch) * math::ceil_div(rows, transpose_side) * math::ceil_div(columns, transpose_side);
  return tiles.fits(most) && rows <= most && columns <= most;
}

/// Loads the kernels on the current device. To be called once before transpose_launch; returns an
/// empty string, or what went wrong.
std::string transpose_ready();

/// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string, or
/// what went wrong. `overlap_previous`: as of Launch.
std::string transpose_launch(const Transpose& what, bool overlap_previous,
                             cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
