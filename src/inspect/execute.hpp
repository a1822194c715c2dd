// Running operators one by one: by the oracle, and by a plan each.
#pragma once

#include <string>
#include <vector>

#include "convoy/plan.hpp"
#include "core/threads.hpp"
#include "inspect/operators.hpp"

namespace convoy::inspect {

/// Tensors of values are f32 on the host, [T,N,H,W,C]; T is 1 where a value is the same in each
/// step.
struct Output {
  Tensor y;
  Tensor membrane;     // of a neuron by the reference: charged, before it fires; shaped like y
  double seconds = 0;  // of the run
};

/// What the first operators read: images [N,H,W,C] as x', f32.
Tensor first_input(const NetworkText& text, const ConstTensorView& images, Threads& threads);

/// What the operator reads of `outputs` (of all operators so far), or `images` where it reads them.
/// Several are put side by side in `joined`.
ConstTensorView input_of(const Operator& op, const std::vector<Output>& outputs,
                         const Tensor& images, Tensor& joined);

/// What Convoy's values are compared with.
class Reference {
 public:
  virtual ~Reference() = default;
  /// For people.
  virtual std::string name() const = 0;
  /// The operator's values for x. Throws Error.
  virtual Output run(const Operator& op, Index steps, Index n, const ConstTensorView& x) = 0;
};

/// The oracle, exact sums. `run` throws Error where the stage has too many images.
class OracleReference final : public Reference {
 public:
  explicit OracleReference(Threads& threads) : threads_(threads) {}
  std::string name() const override { return "the oracle"; }
  Output run(const Operator& op, Index steps, Index n, const ConstTensorView& x) override;

 private:
  Threads& threads_;
};

/// All operators, each on what those before it gave.
std::vector<Output> all_by_reference(const Operators& operators, const Tensor& images,
                                     Reference& reference);

/// An operator, or a block of several, as a plan.
class Planned {
 public:
  /// Throws Error where no kernel fits.
  Planned(const Operator& op, Index steps, Index n, const PlanOptions& options);
  /// The values for x, on the host. Throws Error where the device fails.
  Output run(const ConstTensorView& x);
  /// Median seconds of a run on what the last one read.
  double time();
  std::string kernel() const { return plan_.kernel(); }

 private:
  Operands operands();

  Plan plan_;
  std::vector<Index> shape_;
  Tensor x_, bias_, y_;  // on the plan's device
};

/// The mean over the steps of the last operator's output, by the definition: summed in double.
Tensor mean_of(const Tensor& y);

}  // namespace convoy::inspect
