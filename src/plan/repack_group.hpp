// Plan::repack for the weights of many plans at once: two kernels compare and pack all of them, so
// that a network whose weights rarely change takes little more time than one with fixed weights.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convoy/plan.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"

namespace convoy {

class Bound;

/// A group has plans on one GPU. Plans, weights and vectors must outlive the group. No function may
/// overlap a run, or a change of weights, of one of the plans on the host.
class RepackGroup {
 public:
  /// At most `plans` of them. Throws Error where memory runs out.
  RepackGroup(Device device, Index plans);

  /// Adds a plan that no other member is, with weights [K,R,S,C/groups] on its GPU. A norm with a
  /// variance is folded into the weights. Its shift is what a run takes as the bias. False if a
  /// group can't pack these weights: they have gaps, or a norm's filters don't lie one behind the
  /// other. Throws Error as Plan::repack does.
  bool add(Plan& plan, const ConstTensorView& weights, const gpu::FoldedNorm& norm, Stream stream);

  /// As Plan::repack of each member, and its norm's shift. Throws Error, also on a stream that is
  /// being captured: the group would have to outlive the graph.
  void enqueue(Stream stream);

 private:
  void make_tables();

  Device device_;
  Tensor changed_;  // a flag per plan
  std::vector<Bound*> members_;
  std::vector<gpu::Watch> watches_;
  std::vector<gpu::GroupFill> fills_;
  gpu::Table watch_table_, fill_table_;  // of the members so far, since the first `enqueue`
  std::shared_ptr<gpu::Event> done_;
};

}  // namespace convoy
