// Selection: from a stage and a machine to an arithmetic, a kernel and a tile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {

/// A tile and what the cost model says of it.
struct RankedTile {
  Tile tile;
  Cost cost;
};

/// What selection found out about one kernel.
struct Verdict {
  const Kernel* kernel = nullptr;
  std::vector<std::string> refusals;  // empty: it fits
  double canonical_seconds = 0;       // best predicted time of the canonical stage, one thread
  std::vector<RankedTile> tiles;      // of the stage itself, the best first
  bool fits() const { return refusals.empty(); }
};

struct Selection {
  Stage canonical;                // on which the arithmetics were compared
  std::vector<Verdict> verdicts;  // in the order of the kernel table
  std::size_t chosen = 0;         // index into verdicts
  RankedTile tile;
  std::string why_arithmetic;  // a sentence each
  std::string why_tile;
  std::optional<TunedTile> tuned;  // the measurement that decided, if one did

  const Verdict& verdict() const { return verdicts[chosen]; }
  const Kernel& kernel() const { return *verdicts[chosen].kernel; }
};

/// The machine that a plan with these options will run on. Throws Error where there is none.
Machine machine_for(const PlanOptions& options);

/// The stage with which arithmetics are compared: n is replaced by the least one that gives 4,096
/// output pixels (131,072 on a GPU, enough to fill it; at most 1,024 images), so that the choice,
/// and with it the bits of an image, can't depend on the batch.
Stage canonical_stage(const Stage& stage, DeviceKind device);

/// Looks at every kernel. Throws Error when the stage is illegal, when a forced kernel or tile does
/// not exist or fit (with every reason, and what does fit), or when nothing fits.
/// The rule: 1. kernels that refuse the stage are out, and so is, in exact mode, each whose
/// arithmetic is not exact. 2. The arithmetic is that of the kernel with the least predicted
/// time on the canonical stage with one thread. 3. Among the kernels and tiles of that arithmetic
/// a measured time (tuning) decides, else the least predicted time of the stage itself.
Selection select(const Stage& stage, const Machine& machine, const PlanOptions& options,
                 const TuningCache* tuning);

}  // namespace convoy
