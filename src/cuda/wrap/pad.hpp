// Between tensors with any number of channels and those that TMA can move: pixels copied to another
// number of channels, near the speed of a copy.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "convoy/stage.hpp"

namespace convoy::cuda {

/// For each of `pixels`: to[c] = from[c] for c < channels, and 0 up to `wide`, a multiple of 8,
/// where it `widens`. Elements have 16 bits; strides are in elements from a pixel to the next. The
/// wider side (`to` where it widens, else `from`) lies on 16 bytes, its stride is a multiple of 8.
struct Pad {
  const void* from = nullptr;
  void* to = nullptr;
  Index pixels = 0, channels = 0, wide = 0;
  Index from_stride = 0, to_stride = 0;
  bool widens = false;
};

/// The bias of `k` filters with zeros up to `wide`. Null: there is none.
struct PadBias {
  const float* from = nullptr;
  float* to = nullptr;
  Index k = 0, wide = 0;
};

/// Whether so many elements, on the wider side, are not too many for a launch.
constexpr bool may_pad(Index elements) {
  return elements / 8 < Index{1} << 31;
}

/// Loads the kernels on the current device. To be called once before pad_launch; returns an empty
/// string, or what went wrong.
std::string pad_ready();

/// Enqueues one launch for both. No allocation, no synchronisation, capturable. Returns an empty
/// string, or what went wrong. `overlap_previous`: as of Launch.
std::string pad_launch(const Pad& pixels, const PadBias& bias, bool overlap_previous,
                       cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
