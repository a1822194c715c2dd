// A prepared stage of a family that runs it in one launch and is told of its weights in each run.
// (Those of sm90 are told when weights are set: sm90/prepared.hpp.)
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/kernel.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"

namespace convoy::cuda {

/// Owns the launch and the weights. `Launch` is made of the stage and what the family lays out; its
/// run(args, weights, stream) gives an empty string, or what went wrong.
template <class Launch>
class PreparedStage : public Prepared {
 public:
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const final {
    return pack_values(stage_, this->laid_out(0, all.front().w), held(), device_);
  }
  void use(std::shared_ptr<const PackedWeights> weights) final {
    weights_ = std::static_pointer_cast<const DeviceWeights>(std::move(weights));
  }

 protected:
  /// The type of the packed weights in memory.
  virtual DType held() const { return compute_type(stage_); }

  /// Throws Error.
  template <class... Laid>
  PreparedStage(const Stage& stage, const Machine& machine, const Laid&... laid)
      : stage_(stage), device_(machine.device.index) {
    const OnDevice on(device_);
    launch_.emplace(stage, laid...);
  }

  /// A run of at least one image, whose operands fit.
  Status enqueue(const RunArgs& args) const noexcept {
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    return launch_status(launch_->run(args, weights_->memory.data(), stream_of(args)));
  }

  const Stage stage_;
  const int device_;

 private:
  std::shared_ptr<const DeviceWeights> weights_;
  std::optional<Launch> launch_;
};

}  // namespace convoy::cuda
