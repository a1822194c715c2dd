// Copies that a run makes on a GPU: enqueued, without an allocation and without an exception.
#pragma once

#include <cstddef>

#include "convoy/error.hpp"
#include "convoy/tensor.hpp"

namespace convoy::gpu {

/// `count` rows of `bytes`, each at its pitch. Both sides are on the GPU.
struct Rows {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0, count = 1, from_pitch = 0, to_pitch = 0;
};
/// Enqueued on the stream, capturable.
Status copy_rows(Device device, const Rows& rows, void* stream) noexcept;

}  // namespace convoy::gpu
