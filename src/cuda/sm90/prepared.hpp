// A prepared stage of a family that runs it in one launch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/kernel.hpp"
#include "cuda/error.hpp"
#include "cuda/family.hpp"

namespace convoy::cuda::sm90 {

/// Owns the launch and the weights that it reads. `Launch` is made of the stage and what the family
/// lays out, is told of weights by use(const void*), and enqueues a Launch::Run.
template <class Launch>
class PreparedLaunch : public Prepared {
 public:
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const final {
    return pack_values(stage_, this->laid_out(0, all.front().w), held(), device_);
  }
  void use(std::shared_ptr<const PackedWeights> weights) final {
    const OnDevice on(device_);
    launch_->use(static_cast<const DeviceWeights&>(*weights).memory.data());
    weights_ = std::move(weights);
  }

 protected:
  /// The type of the packed weights in memory.
  virtual DType held() const { return compute_type(stage_); }

  /// Throws Error.
  template <class... Laid>
  PreparedLaunch(const Stage& stage, const Machine& machine, const Laid&... laid)
      : stage_(stage), device_(machine.device.index) {
    const OnDevice on(device_);
    launch_.emplace(stage, laid...);
  }

  Status enqueue(const typename Launch::Run& run, const RunArgs& args) const noexcept {
    const OnDevice on(device_);
    if (Status chosen = device_status(on.error()); !chosen.ok()) return chosen;
    return launch_status(launch_->run(run, stream_of(args)));
  }

  const Launch& launch() const { return *launch_; }

  const Stage stage_;
  const int device_;

 private:
  std::shared_ptr<const PackedWeights> weights_;
  std::optional<Launch> launch_;
};

}  // namespace convoy::cuda::sm90
