// A plan on a GPU, timed by replays of a CUDA graph.
#pragma once

#include <optional>

#include "bench/runs.hpp"
#include "core/gpu_timing.hpp"
#include "core/machine.hpp"
#include "plan/timing.hpp"

namespace convoy::bench {

/// Operations a second that a GPU was built for: of its FMA units for f32, of its tensor cores for
/// 16-bit types and for u8, which is computed as f16.
double built_peak(const Machine& machine, DType dtype);

class GpuRuns final : public Runs {
 public:
  /// `seconds`: of a turn. `apart`: turn_apart will be called.
  GpuRuns(const Stage& stage, const Problem& problem, const PlanOptions& options, double seconds,
          bool apart);
  std::vector<double> turn(double seconds) override;
  std::vector<double> turn_apart(double seconds) override;
  double peak_flops() override;
  double flops_a_cycle() const override;

 private:
  Operands set(std::size_t i);  // operands with the i-th buffers
  void enqueue(Stream stream,
               void* word);  // the runs of a graph; word: a foreign kernel behind each
  std::vector<double> samples_of(gpu::Graph& graph, double seconds) const;
  void check(const Stage& stage, const Problem& problem);

  Machine machine_;
  Operands fixed_;  // all but x and y
  std::vector<Tensor> kept_;
  Tensor x_, y_;  // of all sets, in one block each
  ConstTensorView one_x_;
  TensorView one_y_;
  std::size_t x_bytes_ = 0, y_bytes_ = 0;  // from one set to the next
  std::size_t sets_ = 0;
  Tensor word_;  // that the foreign kernel writes
  gpu::Graph graph_;
  std::optional<gpu::Graph> apart_;
  Replays replays_;
};

}  // namespace convoy::bench
