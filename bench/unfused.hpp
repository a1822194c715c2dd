// What fusion saves: the same stage as a chain of passes through memory.
#pragma once

#include "convoy/plan.hpp"
#include "core/threads.hpp"

namespace convoy::bench {

/// A stage's convolution + bias by the best plan for it, then its activation and its max-pool, each
/// a threaded pass of its own over all of the plane. Writes the same y as the stage, in the
/// arithmetic of the plan that is chosen without a pool.
class UnfusedChain {
 public:
  /// For f32 NHWC stages without a neuron and second outputs, that have an activation or a pool;
  /// throws Error for others. w [K,R,S,C/groups] f32.
  UnfusedChain(const Stage& stage, const ConstTensorView& w, const PlanOptions& options);

  /// Operands as for the stage; writes its y.
  void run(const Operands& operands);

 private:
  void activate();
  void pool(const TensorView& y);

  Stage stage_;
  Plan convolution_;
  Threads threads_;
  Tensor conv_, act_;  // [N,P,Q,K]; act_ is empty where there is no activation or no pool
};

}  // namespace convoy::bench
