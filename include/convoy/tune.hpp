/// @file
/// Tuning: measures the kernels and tiles that a plan or a network may choose among, and saves the
/// fastest.
#pragma once

#include <string>
#include <vector>

#include "convoy/plan.hpp"

namespace convoy {

class Network;

/// The measurement of one kernel and tile. A time is the time of one run of the whole stage.
struct TuneRow {
  std::string kernel,    ///< the kernel's name, for PlanOptions::kernel
      tile;              ///< the tile's name, for PlanOptions::tile
  double predicted = 0;  ///< seconds, predicted by the cost model
  double median = 0;     ///< seconds, measured: the median of the medians of five rounds
  double minimum = 0;    ///< seconds, measured: the shortest run
  int runs = 0;          ///< the number of measured runs
  bool chosen = false;   ///< whether it is the fastest that a plan may use: true for the first row
  /// Why a plan must not use it, however fast it is: its results differ in some bits from the
  /// plan's own choice on the measured operands, or it has another arithmetic. Empty: a plan may
  /// use it.
  std::string refused;
};

/// The result of tune().
struct TuneResult {
  Stage stage;             ///< the stage that was measured, normalised
  std::string arithmetic;  ///< the algorithm that fixes the bits; tuning never changes it
  /// The measurements, at least one. The fastest comes first; refused ones come last.
  std::vector<TuneRow> rows;
  std::string saved_to;  ///< path of the tuning cache; empty if `save` was false
};

/// Measures every kernel and tile of the arithmetic that a plan with these options would use, and
/// saves the fastest in the tuning cache.
///
/// - The kernels and tiles take turns. Each is measured for about `seconds` in all, above 0.
/// - The operands are random. tune() allocates x, w and y, several times if they fit into a cache.
/// - A tile that is predicted to take more than four times as long as the best is left out.
/// - Each tile first runs once. It is refused if its results differ in any bit from those of the
///   kernel and tile that a plan would choose without a measurement.
/// - PlanOptions::kernel and PlanOptions::tile narrow the choice.
/// - With `save`, later plans of this stage on this machine with this number of threads use the
///   fastest. Existing plans do not change.
///
/// Throws Error as the constructor of Plan, if `seconds` is not above 0, and if the cache can't be
/// written; then nothing is saved. Several threads and processes may call it at once: they disturb
/// each other's times, but not the cache.
///
///     const Stage stage = parse_stage("n32h56c64k128r3pad1+bias+relu+max2");
///     const TuneResult tuned = tune(stage, {.threads = 1});
///     // tuned.rows[0]: the kernel and tile that Plan(stage, {.threads = 1}) uses from now on
CONVOY_API TuneResult tune(const Stage& stage, const PlanOptions& options = {},
                           double seconds = 0.3, bool save = true);

/// The measurement of a stage of a network, or of a chain of stages that one kernel runs.
struct TunedStage {
  /// The names of the layers that run it, in the network's order. Layers with equal stages are
  /// measured once.
  std::vector<std::string> layers;
  Index batch = 0;         ///< the number of images that pass through the layers at once
  std::string stage;       ///< the stage or the chain as text, as `convoy tune --stage` takes it
  std::string arithmetic;  ///< the algorithm that fixes the bits; tuning never changes it
  /// The measurements, at least one. The fastest comes first; refused ones come last. A chain has
  /// one row with the kernel `stages`: its stages, each by itself.
  std::vector<TuneRow> rows;
};

/// The result of tune() of a network.
struct NetworkTuneResult {
  std::vector<TunedStage> stages;  ///< in the network's order, batch by batch
  std::string saved_to;            ///< path of the tuning cache; empty if nothing was saved
};

/// Measures every stage of a network as the function above, on the network's device and with its
/// number of threads, and saves the fastest of all of them in the tuning cache, which is written
/// once, at the end.
///
/// - `batches`: the numbers of images, NetworkOptions::batch, of the networks that will use the
///   results. Empty: the network's own Network::batch().
/// - Stages that one kernel runs are measured as a chain, with the stages by themselves beside it.
///   If these are faster and have the same bits, they are measured too.
/// - Networks that are made later use the fastest, also of other weights. The network itself does
///   not change; load it again.
///
/// Throws Error if the network was moved from, if a batch is not 1 to 2^31 - 1, if `seconds` is not
/// above 0, if memory runs out, and if the cache can't be written; then nothing is saved.
///
///     const NetworkOptions options{.threads = 4, .batch = 8};
///     tune(Network("models/fashion-scnn", options));
///     const Network network("models/fashion-scnn", options);  // uses the fastest tiles
CONVOY_API NetworkTuneResult tune(const Network& network, const std::vector<Index>& batches = {},
                                  double seconds = 0.3, bool save = true);

}  // namespace convoy
