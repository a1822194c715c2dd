// Runs of a stage inside fences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/draw.hpp"
#include "verify/fences.hpp"

namespace convoy::verify {

/// What a run wrote, as fp32 numbers, dense: y and idx [T,N,P',Q',K], pre and act [T,N,P,Q,K],
/// membrane [N,P,Q,K]; empty where the stage keeps none. `error` is the run's status, or says where
/// it wrote outside its outputs. `refused`: the status was not ok.
struct Result {
  std::vector<float> y, pre, act, membrane;
  std::vector<std::int32_t> idx;
  std::string error;
  bool refused = false;
};

/// Runs operands that lie between fences.
class Guard {
 public:
  /// Runs on a stream of its own.
  explicit Guard(Device device) : fences_(device) {}
  Stream stream() const { return fences_.stream(); }

  /// Runs on `inputs.stage.n` images. Outputs are NaN beforehand, and so is all that lies around
  /// inputs and outputs. The final membranes are always asked for.
  Result run(const Plan& plan, const Inputs& inputs, Views views);
  /// The same for anything that runs operands.
  Result run(const std::function<Status(const Operands&, Stream)>& run, const Inputs& inputs,
             Views views);

 private:
  Fences fences_;
};

/// One run on the plan's device.
Result run_guarded(const Plan& plan, const Inputs& inputs, Views views);
/// One run of anything that runs operands in host memory.
Result run_guarded(const std::function<Status(const Operands&)>& run, const Inputs& inputs,
                   Views views);

}  // namespace convoy::verify
