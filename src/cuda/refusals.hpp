// Why a family can't run a stage of these sizes on a device, in one wording for the GPU's families.
#pragma once

#include <string>
#include <utility>

#include "core/serves.hpp"
#include "cuda/device_facts.hpp"
#include "cuda/limits.hpp"

namespace convoy::cuda {

/// Adds to `why` each reason that lies in a stage's sizes or in the device. What else a family does
/// not serve is there already (core/serves.hpp).
class Refusals {
 public:
  Refusals(const Stage& stage, Reasons& why) : stage_(stage), why_(why) {}

  Refusals& no(bool refused, std::string reason) {
    if (refused) why_.push_back(std::move(reason));
    return *this;
  }

  /// Instructions of 9.0 that later devices lack.
  Refusals& hopper(const DeviceFacts& device);
  Refusals& channels_in_eights();
  Refusals& filters_in_eights();
  /// Sizes that the family can count.
  Refusals& within(const Limits& limits);

  /// Whether the stage is served so far: only then may its layout be asked for.
  bool none() const { return why_.empty(); }

 private:
  const Stage& stage_;
  Reasons& why_;
};

}  // namespace convoy::cuda
