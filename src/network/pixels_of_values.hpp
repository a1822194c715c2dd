// The way back from what the first layer reads, x' = (u/255 - mean)/std in fp32, to the pixel u: of
// the 2^32 values 256 a channel are a pixel's.
#pragma once

#include <cstdint>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::network {

inline constexpr Index longest_vector = 64;  // floats, of any instruction set

/// Rows of constants of each channel, repeated so that a vector may start at any channel: scale and
/// shift (u is near x' * scale + shift), mean, std and 1 / std.
struct InverseTable {
  const float* rows = nullptr;
  Index pitch = 0, channels = 1;
};

class PixelsOfValues {
 public:
  /// `values` [C][256] as values_of_pixels gives them, or empty: there are no pixels; mean and std
  /// [C].
  PixelsOfValues(const std::vector<float>& values, const std::vector<float>& mean,
                 const std::vector<float>& std);

  /// False where rounding lets one of the 256 values of a channel go: then `run` finds none.
  bool possible() const { return loop_ != nullptr; }

  /// `count` values of whole pixels to pixels. False where one has not the bits of a pixel's value
  /// (NaN, an infinity, -0 among them); what it writes to `pixels` is then arbitrary.
  /// past_caches: as copy_past_caches, where whole vectors lie on a line.
  bool run(const float* values, Index count, std::uint8_t* pixels, bool past_caches = false) const {
    return loop_ && loop_(table(), values, count, pixels, past_caches);
  }

 private:
  using Loop = bool (*)(const InverseTable&, const float*, Index, std::uint8_t*, bool);
  bool holds(Loop loop, const std::vector<float>& values) const;

  InverseTable table() const { return {rows_.data(), pitch_, channels_}; }

  Index channels_, pitch_;
  std::vector<float> rows_;
  Loop loop_ = nullptr;
};

}  // namespace convoy::network
