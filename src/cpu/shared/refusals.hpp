// Why a kernel can't run a stage of these sizes, in one wording for all of the CPU's families:
// "WHAT is FOUND, expected SERVED".
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "core/serves.hpp"

namespace convoy::cpu {

/// Whether there is a pool, its windows tile the plane in fours, and no operation of PostOps must
/// come before it: register tiles can take it.
bool pools_in_fours(const Stage& stage);
/// The same, of which the last windows may reach beyond the plane.
bool pools_in_fours_or_less(const Stage& stage);
/// Whether kernels that pool in registers only leave the stage's pool to pool_apart.hpp.
bool pools_apart(const Stage& stage);

/// Adds to `why` each reason that lies in a stage's sizes. What else a family does not serve is
/// there already (core/serves.hpp).
class Refusals {
 public:
  Refusals(const Stage& stage, Reasons& why) : stage_(stage), why_(why) {}

  template <class Found>
  Refusals& refuse(std::string_view what, const Found& found, std::string_view expected) {
    why_.push_back(fmt::format("{} is {}, expected {}", what, found, expected));
    return *this;
  }
  /// Unless it is served.
  template <class Found>
  Refusals& expect(bool served, std::string_view what, const Found& found,
                   std::string_view expected) {
    return served ? *this : refuse(what, found, expected);
  }

  Refusals& filter(Index r, Index s);
  Refusals& image_of_at_least(Index size, std::string_view why);
  /// Packed rows behind `rows` rows of the convolution's output, the fewest that the kernel makes
  /// at a time, must not take far more memory than the image, as with absurd paddings and strides.
  Refusals& packing(Index rows);
  /// The rows of the convolution's output that a pool's window covers must fit into some memory,
  /// 16 filters of them.
  Refusals& rows_of_pool();
  /// A pool apart goes through all results of an image.
  Refusals& plane_of_pool();

 private:
  const Stage& stage_;
  Reasons& why_;
};

}  // namespace convoy::cpu
