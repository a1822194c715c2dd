// What all kernels of one stage on the CPU do alike with weights: pack them into an object that
// does not change, which plans share, and keep the one in use.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/kernel.hpp"

namespace convoy::cpu {

/// Weights is derived from PackedWeights.
template <class Weights>
class CpuPrepared : public Prepared {
 public:
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const final {
    auto packed = std::make_shared<Weights>();
    lay_out(all.front().w, *packed);
    return packed;
  }
  void use(std::shared_ptr<const PackedWeights> packed) final {
    weights_ = std::static_pointer_cast<const Weights>(std::move(packed));
  }

 protected:
  /// f32 [K,R,S,C/groups] to the layout that `packing` names.
  virtual void lay_out(const float* w, Weights& to) const = 0;
  /// Those in use.
  const Weights& weights() const { return *weights_; }

 private:
  std::shared_ptr<const Weights> weights_;
};

/// The shape of the stage's weights, with which every packing's name begins.
std::string weights_shape(const Stage& stage);

}  // namespace convoy::cpu
