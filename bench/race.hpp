// Contestants that run in turns, round after round, until their times have settled.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/harness.hpp"

namespace convoy::bench {

/// One that takes part: seconds of one run, several times over.
struct Contestant {
  using Turn = std::function<std::vector<double>()>;
  Turn turn;
  Turn apart = {};  // the same with a foreign kernel behind each run; may be empty
  Timing timing = {};
  std::vector<double> rounds = {},
                      apart_rounds = {};  // median of each round kept, from the first on
  bool in_race = true;
};

/// The contestants of one stage, ours first, one for each mode.
class Race {
 public:
  Race(const Options& options, std::size_t ours) : options_(options), ours_(ours) {}
  void add(Contestant contestant) { contestants_.push_back(std::move(contestant)); }

  /// `peak_now`: what the machine reaches at the moment. On a CPU it is measured around a round,
  /// which is dropped where it fell; on a GPU behind our turn, for the clock depends on the load.
  /// Throws Error where every round was dropped.
  void run(const std::string& title, const std::function<double()>& peak_now);

  /// The row of one of ours, against everything that is not ours.
  void fill(Row& row, std::size_t mine) const;

 private:
  /// Everybody's turn once: their samples, and what the machine reached meanwhile.
  struct Round {
    std::vector<std::vector<double>> samples, apart;
    double peak = 0;
  };
  Round round(const std::function<double()>& peak_now);
  void keep(const Round& round);
  void rest(int milliseconds, bool ours_ran) const;
  double best_other() const;
  void leave_behind();
  bool quiet() const;
  bool gpu() const { return options_.plan.device.kind == DeviceKind::cuda; }

  const Options& options_;
  std::size_t ours_;
  std::vector<Contestant> contestants_;
  std::vector<double> peaks_;
  int dropped_ = 0;
};

}  // namespace convoy::bench
