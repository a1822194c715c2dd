#include "bench/race.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "bench/peer_process.hpp"
#include "bench/statistics.hpp"
#include "convoy/error.hpp"

namespace convoy::bench {
namespace {

// Median over rounds of theirs / ours.
double median_ratio(const std::vector<double>& theirs, const std::vector<double>& ours) {
  std::vector<double> ratios;
  for (std::size_t r = 0; r < std::min(theirs.size(), ours.size()); ++r)
    ratios.push_back(theirs[r] / ours[r]);
  return median(ratios);
}

}  // namespace

void Race::run(const std::string& title, const std::function<double()>& peak_now) {
  double best_peak = 0;
  for (int i = 0; i < options_.most_rounds && !quiet(); ++i) {
    if (options_.progress)
      options_.progress(
          fmt::format("round {} of at most {}: {}", i + 1, options_.most_rounds, title));
    const Round now = round(peak_now);
    best_peak = std::max(best_peak, now.peak);
    if (!gpu() && now.peak < 0.9 * best_peak)
      ++dropped_;
    else
      keep(now);
    if (peaks_.size() == 3) leave_behind();
  }
  if (peaks_.empty())
    throw Error(
        fmt::format("bench: no quiet round in {}: the machine is busy. Stop other work and try "
                    "again.",
                    options_.most_rounds));
}

Race::Round Race::round(const std::function<double()>& peak_now) {
  Round all;
  rest(10, false);
  if (!gpu()) all.peak = peak_now();
  for (std::size_t i = 0; i < contestants_.size(); ++i) {
    const Contestant& c = contestants_[i];
    all.samples.push_back(c.in_race ? c.turn() : std::vector<double>());
    if (gpu() && i == 0) all.peak = peak_now();
    all.apart.push_back(c.in_race && c.apart ? c.apart() : std::vector<double>());
    rest(5, i < ours_);
  }
  if (!gpu()) all.peak = std::min(all.peak, peak_now());
  return all;
}

void Race::keep(const Round& round) {
  peaks_.push_back(round.peak);
  for (std::size_t i = 0; i < contestants_.size(); ++i) {
    Contestant& c = contestants_[i];
    if (!round.apart[i].empty()) c.apart_rounds.push_back(median(round.apart[i]));
    if (round.samples[i].empty()) continue;
    c.rounds.push_back(median(round.samples[i]));
    const double least = quantile(round.samples[i], 0);
    c.timing.minimum = c.timing.minimum > 0 ? std::min(c.timing.minimum, least) : least;
  }
}

void Race::fill(Row& row, std::size_t mine) const {
  const Contestant& ours = contestants_[mine];
  for (std::size_t i = 0; i < contestants_.size(); ++i) {
    const Contestant& c = contestants_[i];
    if (i < ours_ && i != mine) continue;
    Timing timing = c.timing;
    timing.median = median(c.rounds);
    timing.spread = spread(c.rounds);
    timing.ratio = median_ratio(c.rounds, ours.rounds);
    timing.apart = median(c.apart_rounds);
    timing.apart_ratio = median_ratio(c.apart_rounds, ours.apart_rounds);
    if (i == mine)
      row.ours = timing;
    else
      row.peers.push_back(timing);
  }
  row.peak_gflops = 1e-9 * median(peaks_);
  row.rounds = static_cast<int>(peaks_.size());
  row.dropped = dropped_;
  row.quiet = quiet();
}

// After a run on the CPU threads spin for some milliseconds: ours, and the peers' where they are
// not stopped.
void Race::rest(int milliseconds, bool ours_ran) const {
  if (!options_.peers || gpu()) return;
  if (ours_ran || !options_.peers->stopped())
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

double Race::best_other() const {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = ours_; i < contestants_.size(); ++i)
    if (contestants_[i].timing.whole) best = std::min(best, median(contestants_[i].rounds));
  return best;
}

// A peer far behind the best one can't be the best any more: its time is better spent on the rest.
void Race::leave_behind() {
  const double best = best_other();
  for (std::size_t i = ours_; i < contestants_.size(); ++i)
    contestants_[i].in_race = median(contestants_[i].rounds) < 1.5 * best;
}

// Ours and the peers still in the race have settled.
bool Race::quiet() const {
  if (static_cast<int>(peaks_.size()) < options_.least_rounds) return false;
  const double best = best_other();
  for (std::size_t i = 0; i < contestants_.size(); ++i) {
    const bool matters = i < ours_ || median(contestants_[i].rounds) < 1.1 * best;
    if (matters && spread(contestants_[i].rounds) >= options_.quiet) return false;
  }
  return true;
}

}  // namespace convoy::bench
