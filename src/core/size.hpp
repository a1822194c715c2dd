// Sizes that follow from other sizes. Whatever a stage, a file or an option says goes through here
// before memory is asked for or an index is formed: a product that wraps around would be a buffer
// that is too small.
#pragma once

#include <cstddef>

#include "convoy/stage.hpp"

namespace convoy {

/// A count or a number of bytes that saturates instead of wrapping around: Size(h) * w * c + 16.
/// Negative factors, and results above `most`, are "too large" and stay so.
class Size {
 public:
  /// Leaves room for one more multiplication by the size of an element.
  static constexpr Index most = Index{1} << 60;

  constexpr Size(Index value = 0) : value_(value) {  // NOLINT: sizes mix with sizes
    if (value < 0 || value > most) value_ = too_large;
  }
  constexpr bool fits(Index limit = most) const { return value_ <= limit; }
  /// `most` and more for what is too large: right for comparisons, never for an allocation.
  constexpr Index value() const { return value_; }

  constexpr Size& operator*=(Size other) {
    // No division: planning multiplies thousands of sizes. 0 times too large is 0: of an empty
    // tensor nothing is allocated.
    if (__builtin_mul_overflow(value_, other.value_, &value_) || value_ > most) value_ = too_large;
    return *this;
  }
  constexpr Size& operator+=(Size other) {
    value_ = value_ > most - other.value_ ? too_large : value_ + other.value_;
    return *this;
  }
  friend constexpr Size operator*(Size a, Size b) { return a *= b; }
  friend constexpr Size operator+(Size a, Size b) { return a += b; }
  friend constexpr bool operator==(Size a, Size b) = default;
  friend constexpr auto operator<=>(Size a, Size b) = default;

 private:
  static constexpr Index too_large = most + 1;
  Index value_;
};

}  // namespace convoy
