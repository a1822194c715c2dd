// Runs inside fences: memory around and between what a kernel may touch is poisoned, and looked at
// afterwards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/draw.hpp"

namespace convoy::verify {

/// Dense: 64-byte aligned, no gaps. Strided: aligned to one element only, with unused channels
/// between pixels (NHWC) or unused elements between images (NCHW).
enum class Views : std::uint8_t { dense, strided };

/// What a run wrote, as fp32 numbers, dense: y and idx [T,N,P',Q',K], pre and act [T,N,P,Q,K],
/// membrane [N,P,Q,K]; empty where the stage keeps none. `error` is the run's status, or says where
/// it wrote outside its outputs.
struct Result {
  std::vector<float> y, pre, act, membrane;
  std::vector<std::int32_t> idx;
  std::string error;
};

/// Runs the plan on `inputs.stage.n` images. Outputs are NaN beforehand, and so is all that lies
/// around inputs and outputs. The final membranes are always asked for.
Result run_guarded(const Plan& plan, const Inputs& inputs, Views views);
/// The same for anything that runs operands.
Result run_guarded(const std::function<Status(const Operands&)>& run, const Inputs& inputs,
                   Views views);

}  // namespace convoy::verify
