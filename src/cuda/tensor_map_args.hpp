// How TMA walks a tensor: plain numbers that a test can check without a GPU.
#pragma once

#include <array>
#include <cstdint>

#include "convoy/stage.hpp"

namespace convoy::cuda {

/// Axes innermost first. Sizes and boxes in elements, strides in bytes (that of axis 0 is implied).
struct TensorMapArgs {
  DType dtype = DType::f16;  // f16, bf16 or f32
  int rank = 0;
  std::array<std::uint64_t, 5> size{};
  std::array<std::uint64_t, 5> stride{};
  std::array<std::uint32_t, 5> box{};
  std::array<std::uint32_t, 5> step{1, 1, 1, 1, 1};  // takes every step-th element of the box
  bool swizzle = true;  // in rows of 128 bytes, or of 64 if axis 0 of the box is that; else the box
                        // lies in shared memory as it is
  bool operator==(const TensorMapArgs&) const = default;
};

}  // namespace convoy::cuda
