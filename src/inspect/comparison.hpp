// What an operator gave against what the reference gave: how far apart, where, and which spikes may
// differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::inspect {

/// A value is off where it differs from the reference by more than absolute + relative times the
/// largest |reference| of the operator. Not of the value itself: the rounding error of a sum comes
/// from its terms, and a sum near 0 has as much of it as its neighbours.
struct Tolerance {
  double absolute = 1e-6, relative = 1e-5;
};

/// Which spikes may differ. A spike is a step: rounding flips it where the reference's membrane is
/// at the threshold, and what flipped once has another membrane from then on.
struct SpikeRule {
  double threshold = 1;
  std::span<const float> membrane = {};  // [T,N,P,Q,K], charged; empty: none may differ
  Stage stage;                           // the pool behind the neuron, or the neuron, on [P,Q,K]
  /// Membranes within it are at the threshold.
  double near() const;
};

/// An element that differs.
struct Difference {
  std::size_t at = 0;
  float got = 0, expected = 0;
  double error = 0;      // infinite where one of them is NaN or infinite
  double distance = -1;  // of a spike: least |membrane - threshold| in steps up to its own, over
                         // the pool's window; negative: not known
};

struct Comparison {
  std::size_t values = 0;
  std::size_t off = 0;         // beyond the tolerance, or a spike without an excuse
  std::size_t excused = 0;     // spikes that differ with a membrane at the threshold
  std::size_t not_finite = 0;  // of those off: NaN or infinite on one side, or differently on both
  double largest = 0;          // |reference|
  double max_error = 0, mean_error = 0;  // of finite values
  double relative_error = 0;             // max_error / largest
  Difference first = {};                 // in order of position, of those off
  std::vector<Difference> worst;         // those off first, then by error; at most so many as asked
};

/// Two arrays [T,N,H,W,C] of the same size. `spikes` is null where they are no spikes.
Comparison compare(std::span<const float> got, std::span<const float> expected,
                   const std::vector<Index>& shape, const Tolerance& tolerance,
                   const SpikeRule* spikes, std::size_t most_worst);

/// Whether `got` agrees when it is read as [T,N,C,H,W], PyTorch's order.
bool agrees_channels_first(std::span<const float> got, std::span<const float> expected,
                           const std::vector<Index>& shape, const Tolerance& tolerance);

/// Steps, images, row, column and channel of an element of [T,N,H,W,C].
std::vector<Index> coordinates(std::size_t at, const std::vector<Index>& shape);

}  // namespace convoy::inspect
