// Why a kernel can't run a stage, in one wording for all of the CPU's families: "WHAT is FOUND,
// expected SERVED".
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::cpu {

/// Whether there is a pool, and its windows tile the plane in fours.
bool pools_in_fours(const Stage& stage);
/// The same, of which the last windows may reach beyond the plane.
bool pools_in_fours_or_less(const Stage& stage);

/// Collects every reason. Each function but the first two names what a family serves and adds the
/// reason where the stage asks for something else.
class Refusals {
 public:
  explicit Refusals(const Stage& stage) : stage_(stage) {}

  template <class Found>
  Refusals& refuse(std::string_view what, const Found& found, std::string_view expected) {
    reasons_.push_back(fmt::format("{} is {}, expected {}", what, found, expected));
    return *this;
  }
  /// Unless it is served.
  template <class Found>
  Refusals& expect(bool served, std::string_view what, const Found& found,
                   std::string_view expected) {
    return served ? *this : refuse(what, found, expected);
  }

  Refusals& filter(Index r, Index s);
  Refusals& no_stride();
  Refusals& no_dilation();
  Refusals& one_group();
  Refusals& image_of_at_least(Index size, std::string_view why);
  Refusals& x_of(std::initializer_list<DType> types);
  Refusals& f32_y();
  Refusals& nhwc();
  Refusals& no_norm();
  Refusals& no_neuron();
  Refusals& no_pool();
  /// A pool whose windows tile the plane in fours, if any.
  Refusals& windows_of_four();
  Refusals& no_keep();
  /// Bits for spikes instead of values of x: no groups, norm, hold or second outputs.
  Refusals& spikes();
  /// Packed rows behind `rows` rows of the convolution's output, the fewest that the kernel makes
  /// at a time, must not take far more memory than the image, as with absurd paddings and strides.
  Refusals& packing(Index rows);
  /// The rows of the convolution's output that a pool's window covers must fit into some memory,
  /// 16 filters of them.
  Refusals& rows_of_pool();

  std::vector<std::string> all() { return std::move(reasons_); }

 private:
  const Stage& stage_;
  std::vector<std::string> reasons_;
};

}  // namespace convoy::cpu
