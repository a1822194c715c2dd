// Why a family can't run a stage, in one wording for the GPU's families.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "convoy/stage.hpp"
#include "cuda/device_facts.hpp"
#include "cuda/limits.hpp"

namespace convoy::cuda {

/// Collects every reason. Each function but the first two names what a family serves and adds the
/// reason where the stage, or the device, is another.
class Refusals {
 public:
  explicit Refusals(const Stage& stage) : stage_(stage) {}

  Refusals& no(bool refused, std::string reason) {
    if (refused) reasons_.push_back(std::move(reason));
    return *this;
  }
  Refusals& none_of(std::vector<std::string> reasons) {
    for (std::string& reason : reasons) reasons_.push_back(std::move(reason));
    return *this;
  }

  /// Instructions of 9.0 that later devices lack.
  Refusals& hopper(const DeviceFacts& device);
  /// x of 16 bits, and y of its type.
  Refusals& halves();
  Refusals& channels_in_eights();
  Refusals& filters_in_eights();
  Refusals& no_stride();
  Refusals& no_dilation();
  Refusals& one_group();
  Refusals& nhwc();
  Refusals& no_norm();
  Refusals& no_keep();
  Refusals& no_neuron();
  /// An activation that may follow the pool, where there is one.
  Refusals& pools_first();
  /// Sizes that the family can count.
  Refusals& within(const Limits& limits);

  bool none() const { return reasons_.empty(); }
  std::vector<std::string> all() { return std::move(reasons_); }

 private:
  const Stage& stage_;
  std::vector<std::string> reasons_;
};

}  // namespace convoy::cuda
