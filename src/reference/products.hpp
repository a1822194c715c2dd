// The oracle's loops over products, in which it spends nearly all of its time.
//
// They are a file of their own so that builds with sanitizers compile them as the release does
// (cmake/library.cmake). What they read is in spans, whose bounds are checked where they are made.
#pragma once

#include <span>

#include "reference/reference.hpp"

namespace convoy::reference {

/// What a tap (r, s) of a pixel reads.
struct Tap {
  std::span<const double> x;       // [C]; empty where it lies in the padding
  std::span<const float> weights;  // [C/groups,K]
};

/// What is rounded to fp32: nothing, each sum as by a fused multiply-add (its product is exact in
/// double), or each product and each sum.
enum class Rounding { none, sums, both };

/// Adds the products of all taps [R,S] to sums [K], in the order of the sequence.
void add_products(std::span<const Tap> taps, Index groups, Sequence sequence, Rounding rounding,
                  std::span<double> sums);

}  // namespace convoy::reference
