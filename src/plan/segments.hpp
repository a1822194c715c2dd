// Segments: which stages of a chain run in one kernel, and which by themselves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "plan/kernel_table.hpp"

namespace convoy {

struct PlanOptions;

/// A chain longer than this is cut: no kernel is known to gain from more.
constexpr std::size_t most_stages = 64;

/// Neighbouring stages that run as one, or one stage.
struct Segment {
  std::size_t first = 0, count = 1;
  /// What runs them; null: a plan of the one stage chooses.
  const Kernel* kernel = nullptr;
  /// Why it is so, a sentence: of a stage by itself why no kernel takes the next one too. Empty
  /// where the device has no kernel for several stages, and of the last stage.
  std::string why;
};

/// Cuts a legal chain into segments. There are two cases:
///
/// - A kernel has the arithmetic that each of the stages also has alone. Fusing can't change bits.
///   The time that `convoy tune` measured for this n decides, or else the smallest predicted time.
/// - A kernel has an arithmetic of its own. It runs the stages if that is predicted to be faster
/// for
///   the canonical n (plan/select.hpp). The cut then does not depend on n.
///
/// kernels: tests pass others than the table's.
std::vector<Segment> cut(const Chain& chain, const Machine& machine, const PlanOptions& options,
                         std::span<const Kernel* const> kernels = kernel_table());

struct SegmentTimes {
  double one_kernel = 0, by_themselves = 0;  // median seconds
};

/// Times both ways of running the chain, for about `seconds` each: by the kernel that `cut` or the
/// cost model chooses for all of it, and stage by stage. Throws Error where no kernel runs all of
/// it, or a run fails.
SegmentTimes measure_segments(const Chain& chain, const PlanOptions& options, double seconds);

}  // namespace convoy
