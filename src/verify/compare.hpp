// Comparisons with the oracle. Each gives an empty text, or says what differs, where and by how
// much.
#pragma once

#include <string>
#include <vector>

#include "reference/reference.hpp"
#include "verify/guarded.hpp"

namespace convoy::verify {

/// Bit for bit, except that -0 = +0 and NaN = NaN. `shape` turns a position into axes.
std::string compare_exact(std::string_view what, const std::vector<float>& got,
                          const std::vector<double>& want, const std::vector<Index>& shape);
std::string compare_exact(std::string_view what, const std::vector<std::int32_t>& got,
                          const std::vector<std::int32_t>& want, const std::vector<Index>& shape);
/// Bits of two runs, -0 and NaN payloads included.
std::string compare_bits(std::string_view what, const std::vector<float>& got,
                         const std::vector<float>& want, const std::vector<Index>& shape);

/// Whether `part`, [steps,n,...], has the bits of `whole`, [steps,images,...]: its image i those of
/// image (first + i) % images there.
std::string compare_images(const std::vector<float>& part, Index n, const std::vector<float>& whole,
                           Index images, Index first, Index steps);

/// |got - want| ≤ most everywhere; NaN and infinities must be where `want` has them.
std::string compare_close(std::string_view what, const std::vector<float>& got,
                          const std::vector<double>& want, double most,
                          const std::vector<Index>& shape);

/// The same with a bound of its own for each element.
std::string compare_close(std::string_view what, const std::vector<float>& got,
                          const std::vector<double>& want, const std::vector<double>& most,
                          const std::vector<Index>& shape);

/// The largest |x|, infinities and NaN left out.
double largest(const std::vector<double>& values);
/// The largest |a - b|, infinities and NaN left out.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

struct SpikeCount {
  Index spikes = 0;
  Index excused = 0;  // differ from the reference, whose membrane is at the threshold
};

/// The rule for spikes: each step is compared with the reference re-run on the same inputs and on
/// our spikes up to that step. A spike may differ only where the reference's membrane lies within
/// 1e-5·max(1, |th|) of the threshold. Where the pool hides which neuron fired, a window with a
/// doubtful neuron is not judged from that step on. Final membranes are judged where there are any.
std::string compare_spikes(const Inputs& inputs, const Result& result, SpikeCount& count);

/// "[1,2,3,4]": the axes of the element at position `at`.
std::string position(std::size_t at, const std::vector<Index>& shape);

}  // namespace convoy::verify
