// A plan on a GPU, timed by replays of a CUDA graph.
#pragma once

#include <optional>

#include "bench/runs.hpp"
#include "core/gpu_timing.hpp"
#include "core/machine.hpp"

namespace convoy::bench {

class GpuRuns final : public Runs {
 public:
  GpuRuns(const Stage& stage, const Problem& problem, const PlanOptions& options);
  std::vector<double> turn(double seconds) override;
  double peak_flops() override;
  double flops_a_cycle() const override;

 private:
  Operands set(int i) const;  // operands with the i-th buffers
  void check(const Stage& stage, const Problem& problem);

  Machine machine_;
  Operands fixed_;  // all but x and y
  std::vector<Tensor> kept_;
  Tensor x_, y_;  // of all sets, in one block each
  TensorView one_x_, one_y_;
  std::size_t x_bytes_ = 0, y_bytes_ = 0;  // from one set to the next
  int sets_ = 0, launches_ = 0;
  std::optional<gpu::Graph> graph_;
};

}  // namespace convoy::bench
