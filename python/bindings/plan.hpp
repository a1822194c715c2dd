// A plan that Python calls: with arrays of any library, from any number of threads.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "convoy/plan.hpp"
#include "layout.hpp"
#include "scratch.hpp"

namespace convoy::python {

/// What Python gives to a run.
struct Given {
  nanobind::handle x, bias, norm, out, pre, act, idx, membrane, membrane_out, stream;

  /// Whether there is more than most calls give.
  bool any_is_rare() const {
    return !norm.is_none() || !pre.is_none() || !act.is_none() || !idx.is_none() ||
           !membrane.is_none() || !membrane_out.is_none();
  }
};

/// A plan, and what a call needs to know of it. C++ asks that new weights do not overlap a run;
/// from Python that is refused, as a fork's child would wait for ever for a lock of another
/// thread's.
class PythonPlan {
 public:
  /// Throws Error.
  PythonPlan(const Stage& stage, const PlanOptions& options, Axes axes);

  nanobind::object run(const Given& given);
  void change(const std::function<void()>& weights);
  /// Waits for runs under way: on a GPU a run takes as long as its launches. No run begins before
  /// it is over, for it keeps Python's lock.
  void change_between_runs(const std::function<void()>& weights);
  /// Whether a run of another thread is under way.
  bool is_running() const { return runs_.load() != 0; }

  Plan plan;

 private:
  class Call;

  Axes axes_;
  std::vector<Index> y_shape_;
  bool last_ = true;
  Pixels x_, y_, kept_;
  std::size_t n_axis_ = 0;
  DType y_dtype_ = DType::f32;
  std::atomic<int> runs_{0};        // under way; -1: weights are changing
  std::optional<Scratch> scratch_;  // of a GPU's plan that needs workspaces
};

/// Takes filters as a view of [K, R, S, C/groups], from an array whose axes `layout` names.
void take_weights(Array& array, nanobind::handle weights, const std::string& layout, Device device,
                  Stream stream);

}  // namespace convoy::python
