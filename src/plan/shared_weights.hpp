// Packed weights that plans of one process share without knowing of each other: by their layout and
// their content.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/kernel.hpp"
#include "plan/bound.hpp"

namespace convoy {

/// What the plan's `pack` gives, or what an earlier call gave that had the same packing and equal
/// parameters, as long as anybody still holds that. Two networks of one model, for other batch
/// sizes or on the same device, so have each weight in memory once.
///
/// Contents are compared by two polynomial hashes modulo 2^61 - 1 at random points (Dietzfelbinger
/// et al., Polynomial Hash Functions Are Reliable, ICALP 1992): n numbers that differ pass for
/// equal with a probability below (n / 2^61)^2. Throws Error as `pack` does.
std::shared_ptr<const PackedWeights> packed_once(const Bound& bound,
                                                 std::span<const Parameters> all);

/// The two hashes of all numbers that were added.
struct ContentHash {
  std::uint64_t a = 0, b = 0;
  /// kind: what the numbers are, so that a bias is no further weights.
  void add(std::uint64_t kind, const float* numbers, std::size_t count);
  auto operator<=>(const ContentHash&) const = default;
};

}  // namespace convoy
