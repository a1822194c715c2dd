// Runs of a chain inside fences.
#pragma once

#include <string>
#include <vector>

#include "plan/bound.hpp"
#include "verify/draw_chain.hpp"
#include "verify/fences.hpp"

namespace convoy::verify {

/// What a run wrote, as fp32 numbers, dense: y of the last stage, [T,N,P',Q',K], or of a mean
/// [N,P',Q',K] and the labels [N]; inner: y of each stage before, where it was asked for. `error`
/// is the run's status, or says where it wrote outside its outputs.
struct ChainResult {
  std::vector<float> y;
  std::vector<std::vector<float>> inner;
  std::vector<std::int32_t> labels;
  std::string error;
};

class ChainGuard {
 public:
  /// Runs on a stream of its own.
  explicit ChainGuard(Device device) : fences_(device) {}

  /// Runs on the images of `inputs`, with the weights that `bound` has. Outputs are NaN beforehand.
  /// `inner`: asks for what lies between the stages.
  ChainResult run(const Bound& bound, const ChainInputs& inputs, bool inner);

 private:
  Fences fences_;
};

}  // namespace convoy::verify
