// Why a plan is what it is: everything that `convoy explain` says, as data, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/parts.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"

namespace convoy {

struct Explanation {
  struct Size {
    std::string symbol, meaning, formula, numbers;
    Index value = 0;
  };
  struct KernelLine {
    std::string kernel, arithmetic;
    bool exact = false, chosen = false;
    std::vector<std::string> refusals;
    // Of a kernel that fits:
    std::string tile;
    Cost predicted;
    Index parts = 1;  // that it runs all images in
    std::optional<Timing> measured;
  };
  /// Bytes that one transfer reads from or writes to memory: in the fused kernel, and in a sequence
  /// of one pass per operation. 0: that variant does not have the transfer.
  struct Traffic {
    std::string what;
    double fused = 0, unfused = 0;
  };

  Stage stage;
  std::string sentence;  // the stage in words
  std::vector<Size> sizes;
  Shapes shapes;
  Machine machine;
  int threads_at_most = 1;        // that the plan may use; machine.threads: those that it uses
  bool machine_measured = false;  // peak and bandwidth: else fixed estimates
  std::vector<KernelLine> kernels;
  std::string arithmetic, why_arithmetic, kernel, tile, why_tile;
  Parts parts;  // that the chosen kernel runs all images in
  Cost predicted;
  std::optional<double> tuned_seconds;
  std::optional<Timing> measured;
  std::string not_measured;  // why not, where a measurement was asked for
  std::optional<std::size_t> workspace_bytes;
  std::vector<Traffic> traffic;
  double compute_floor = 0;  // seconds: a direct convolution's operations at the peak
  double memory_floor = 0;   // seconds: the fused bytes at the bandwidth
  std::string warning;       // of the tuning cache

  double fused_bytes() const;
  double unfused_bytes() const;
  bool on_tensor_cores() const;  // the peak that counts: 16-bit and u8 stages on a GPU
  double operations() const;  // of a direct convolution: 2 a multiply-add, all time steps computed
};

/// Without measuring anything.
Explanation explain(const Stage& stage, const Machine& machine, const Selection& selection);

struct ExplainRequest {
  bool measure = true;        // the chosen kernel, and the machine's peak and bandwidth
  bool every_kernel = false;  // also each kernel that fits
  double seconds = 0.4;       // for each kernel
};
/// Selects, and measures what is asked for. Throws Error as a Plan would.
Explanation explain(const Stage& stage, const PlanOptions& options, const ExplainRequest& request);

std::string to_text(const Explanation& explanation);
std::string to_json(const Explanation& explanation);

}  // namespace convoy
