// Selection: from a chain of stages and a machine to an arithmetic, a kernel and a tile.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "plan/kernel_table.hpp"
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
  double canonical_seconds = 0;       // best predicted time of the canonical chain, one thread
  double compared_seconds = 0;    // by which arithmetics are compared: on a GPU the geometric mean
                                  // of that and the time of one image
  std::vector<RankedTile> tiles;  // of the chain itself, the best first
  bool fits() const { return refusals.empty(); }
};

struct Selection {
  OwnedChain canonical;           // of the batch at which arithmetics are compared
  std::vector<Verdict> verdicts;  // in the order of the kernel table
  std::size_t chosen = 0;         // index into verdicts
  RankedTile tile;
  int threads = 0;             // of the machine's, that a run uses; 0: all
  std::string why_arithmetic;  // a sentence each
  std::string why_tile;
  std::optional<TunedTile> tuned;  // the measurement that decided, if one did

  const Verdict& verdict() const { return verdicts[chosen]; }
  const Kernel& kernel() const { return *verdicts[chosen].kernel; }
};

/// The machine that a plan with these options will run on. Throws Error where there is none.
Machine machine_for(const PlanOptions& options);

/// The same as a run sees it, with as many threads as it uses.
Machine running(const Machine& machine, const Selection& selection);

/// The chain with which arithmetics are compared: n is replaced by the least one that gives the
/// first stage 4,096 output pixels (131,072 on a GPU, enough to fill it; at most 1,024 images), so
/// that the choice, and with it the bits of an image, can't depend on the batch.
OwnedChain canonical_chain(const Chain& chain, DeviceKind device);

/// The kernel's tiles for a chain that it runs, the best predicted first.
std::vector<RankedTile> rank(const Kernel& kernel, const Chain& chain, const Machine& machine);

/// Whether the kernel may run the chain, by name or by choice: it does not refuse it, and is exact
/// where the chain asks for that.
bool fits(const Kernel& kernel, const Chain& chain, const Machine& machine);

/// Looks at every kernel (tests give others than the table's). Throws Error when the chain is
/// illegal, when a forced kernel or tile does not exist or fit (with every reason, and what does
/// fit), or when nothing fits. The rule: 1. kernels that refuse the chain are out, and so is, in
/// exact mode, each whose arithmetic is not exact, and each that runs by name only unless it is
/// named. 2. The arithmetic is that of the kernel with the least predicted time on the canonical
/// chain with one thread. 3. Among the kernels and tiles of that arithmetic a measured time
/// (tuning) decides, else the least predicted time of the chain itself. 4. One thread runs it where
/// that is predicted to take less than to start the others and to wait for them.
Selection select(const Chain& chain, const Machine& machine, const PlanOptions& options,
                 const TuningCache* tuning,
                 std::span<const Kernel* const> kernels = kernel_table());

}  // namespace convoy
