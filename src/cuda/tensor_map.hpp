// Tensor maps: how TMA walks a tensor. The arguments are plain numbers that a test can check
// without a GPU; only `encode` needs a driver.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::cuda {

/// Axes innermost first. Sizes and boxes in elements, strides in bytes (that of axis 0 is implied).
struct TensorMapArgs {
  DType dtype = DType::f16;  // f16 or bf16
  int rank = 0;
  std::array<std::uint64_t, 5> size{};
  std::array<std::uint64_t, 5> stride{};
  std::array<std::uint32_t, 5> box{};
  std::array<std::uint32_t, 5> step{1, 1, 1, 1, 1};  // takes every step-th element of the box
  bool swizzle = true;  // in rows of 128 bytes, or of 64 if axis 0 of the box is that; else the box
                        // lies in shared memory as it is
  bool operator==(const TensorMapArgs&) const = default;
};

/// Every rule of TMA that the arguments or the address break; empty: legal.
std::vector<std::string> problems(const TensorMapArgs& args, const void* data);

/// The map, made by the driver, which is asked for at run time: nothing links to libcuda. Returns
/// an empty string, or why not.
std::string encode(const TensorMapArgs& args, const void* data, CUtensorMap* map) noexcept;

/// Gives a map another address, on 16 bytes: a fifth of the time that making one takes. Returns an
/// empty string, or what went wrong.
std::string redirect(CUtensorMap* map, const void* data) noexcept;

}  // namespace convoy::cuda
