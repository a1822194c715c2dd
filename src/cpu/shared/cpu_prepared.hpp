// What kernels of one stage on the CPU do alike: pack weights into an object that does not change,
// which plans share, and keep the one in use; copy a bias; count bytes.
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

/// Bytes that a run must move.
double bytes_of_stage(const Stage& stage, const Shapes& shapes);

/// to[0, count): the stage's bias, 0 where it has none and beyond K.
void copy_bias(const RunArgs& args, const Stage& stage, Index count, float* to);

}  // namespace convoy::cpu
