// Runs inside fences: memory around and between what a kernel may touch is poisoned, and looked at
// afterwards.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/gpu_timing.hpp"
#include "verify/draw.hpp"

namespace convoy::verify {

/// Dense: 64-byte aligned, no gaps. Strided: aligned to one element only, with unused channels
/// between pixels (NHWC) or unused elements between images (NCHW). Aligned: such gaps, but 16-byte
/// aligned wherever 16 bytes are a whole number of pixels' channels.
enum class Views : std::uint8_t { dense, strided, aligned };

/// What a run wrote, as fp32 numbers, dense: y and idx [T,N,P',Q',K], pre and act [T,N,P,Q,K],
/// membrane [N,P,Q,K]; empty where the stage keeps none. `error` is the run's status, or says where
/// it wrote outside its outputs. `refused`: the status was not ok.
struct Result {
  std::vector<float> y, pre, act, membrane;
  std::vector<std::int32_t> idx;
  std::string error;
  bool refused = false;
};

/// Runs operands that lie in one block of memory, each between fences; keeps the block from run to
/// run: allocating takes longer than most runs on a GPU, and touching fresh pages than many on a
/// CPU.
class Guard {
 public:
  /// Runs on a stream of its own.
  explicit Guard(Device device);
  ~Guard();
  Stream stream() const { return stream_.stream(); }

  /// Runs on `inputs.stage.n` images. Outputs are NaN beforehand, and so is all that lies around
  /// inputs and outputs. The final membranes are always asked for.
  Result run(const Plan& plan, const Inputs& inputs, Views views);
  /// The same for anything that runs operands.
  Result run(const std::function<Status(const Operands&, Stream)>& run, const Inputs& inputs,
             Views views);

 private:
  class Block;
  Device device_;
  gpu::OwnedStream stream_;
  std::unique_ptr<Block> block_;
  Tensor on_device_;  // empty on the CPU, where runs read and write the host's memory itself
};

/// One run on the plan's device.
Result run_guarded(const Plan& plan, const Inputs& inputs, Views views);
/// One run of anything that runs operands in host memory.
Result run_guarded(const std::function<Status(const Operands&)>& run, const Inputs& inputs,
                   Views views);

}  // namespace convoy::verify
