// Times stages, beside other libraries, on a machine that is not ours alone.
//
// Everything runs in turns: each round measures the machine's peak, then our plan, then each peer,
// a few milliseconds each. On a CPU a round in which the FMA peak fell is dropped (a neighbour had
// the cores); on a GPU the peak is that at the clock our turn ended with. A ratio is the median
// over rounds of peer/ours, so that drift cancels.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convoy/plan.hpp"
#include "convoy/stage.hpp"

namespace convoy::bench {

class PeerProcess;

struct Options {
  PlanOptions plan;
  double seconds_per_turn = 0.03;  // of one contestant in one round; at least three runs
  int least_rounds = 5, most_rounds = 25;
  double quiet = 0.02;           // stop once every spread over rounds is below this
  PeerProcess* peers = nullptr;  // not owned
  bool both_modes = false;       // time the stage in strict mode too, in the same rounds
  bool both_types = false;       // time an f16 stage in bf16 too, in the same rounds; without peers
  bool apart = false;            // on a GPU: also with a tiny foreign kernel behind each run
  bool unfused = false;          // also time the stage as a chain of passes, see unfused.hpp
  double bandwidth = 0;          // of the memory, bytes/s; 0: unknown, and no floor is given
  std::function<void(const std::string&)> progress;  // may be empty
};

/// One contestant on one stage. Times in seconds of one run of the whole stage.
struct Timing {
  std::string name;
  double minimum = 0;  // of all runs
  double median = 0;   // of the rounds' medians
  double spread = 0;   // interquartile range of the rounds' medians / median
  double ratio = 0;    // median over rounds of its time / ours; 1 for ours
  double apart = 0;    // of the rounds' medians with a foreign kernel behind each run; 0: not timed
  double apart_ratio = 0;  // median over rounds of its time apart / ours apart
  bool whole = true;       // false: a peer that does only a part of the stage, for comparison
};

struct Row {
  std::string stage;  // its text, or that of a chain
  std::string kernel, tile, arithmetic;
  int threads = 0;
  Timing ours;
  std::vector<Timing> peers;
  nlohmann::json left_out = nlohmann::json::array();  // peers that could not: name, why
  nlohmann::json versions;                            // of the peers' libraries
  std::string peers_method;                           // how the peers say that they are timed
  double plan = 0,
         pack = 0;         // seconds to make the plan and to pack its weights, see plan_times.hpp;
                           // 0: not timed
  double gflops = 0;       // operations of the direct convolution / median time
  double peak_gflops = 0;  // measured beside it, median of the rounds kept
  double bytes = 0;        // x, weights and y once each
  double clock_ghz = 0;    // GPU: of its multiprocessors at the end of our turns
  double floor = 0;        // seconds, where the bandwidth is known: the larger of operations over
                           // peak and bytes over bandwidth
  bool checked = true;     // the output, against the oracle
  std::optional<double> error;  // max|y - y64| / max|y64| of the timed output, on sampled outputs;
                                // none of a chain
  int rounds = 0, dropped = 0;
  bool quiet = false;  // the noise stop was reached

  const Timing* best_peer() const;  // null without peers
  double apart_ratio() const;       // least of the whole peers' ratios apart; 0: none was timed so
};

/// One row, or with both_modes (both_types) one for each mode (type) of a stage that has two.
/// Throws Error when the stage does not fit, or when the timed output is wrong.
std::vector<Row> run(const Stage& stage, const Options& options);

/// How ours is timed, for whoever reads a record.
std::string method_of(DeviceKind device);
nlohmann::json to_json(const Row& row);
std::string csv_header();
std::string to_csv(const Row& row);
/// A table a person reads, one line a row, with the geometric mean of the ratios.
std::string to_table(const std::vector<Row>& rows);

}  // namespace convoy::bench
