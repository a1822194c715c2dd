#include "harness.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "bench/runs.hpp"
#include "convoy/error.hpp"
#include "peer_process.hpp"
#include "reference/reference.hpp"
#include "statistics.hpp"
#include "unfused.hpp"

namespace convoy::bench {
namespace {

struct Contestant {
  Timing timing;
  std::function<std::vector<double>()> turn;
  std::vector<double> rounds = {};  // median of each round kept, from the first on
  bool in_race = true;
};

// Ours in one mode, with the row that it will fill.
struct Ours {
  std::unique_ptr<Runs> runs;
  Row row;

  Ours(const Stage& stage, const Problem& problem, const Options& options)
      : runs(make_runs(stage, problem, options.plan)) {
    const Plan& plan = runs->plan();
    row.stage = stage;
    row.kernel = plan.kernel();
    row.tile = plan.tile();
    row.arithmetic = plan.arithmetic();
    row.threads = plan.threads();
    row.error = runs->error();
  }
};

// The contestants of one stage, ours first, one for each mode.
class Race {
 public:
  Race(const Options& options, std::size_t ours) : options_(options), ours_(ours) {}
  void add(std::string name, std::function<std::vector<double>()> turn, bool whole = true) {
    contestants_.push_back(
        {.timing = {.name = std::move(name), .whole = whole}, .turn = std::move(turn)});
  }

  /// `peak_now`: what the machine reaches at the moment. On a CPU it is measured around a round,
  /// which is dropped where it fell; on a GPU behind our turn, for the clock depends on the load.
  void run(const std::string& title, const std::function<double()>& peak_now) {
    const bool gpu = options_.plan.device.kind == DeviceKind::cuda;
    double best_peak = 0;
    for (int round = 0; round < options_.most_rounds && !quiet(); ++round) {
      if (options_.progress)
        options_.progress(
            fmt::format("round {} of at most {}: {}", round + 1, options_.most_rounds, title));
      rest(10);
      std::vector<std::vector<double>> samples;
      double peak = gpu ? 0 : peak_now();
      for (std::size_t i = 0; i < contestants_.size(); ++i) {
        Contestant& c = contestants_[i];
        samples.push_back(c.in_race ? c.turn() : std::vector<double>());
        if (gpu && i == 0) peak = peak_now();
        rest(5);
      }
      if (!gpu) peak = std::min(peak, peak_now());
      best_peak = std::max(best_peak, peak);
      if (!gpu && peak < 0.9 * best_peak) {
        ++dropped_;
        continue;
      }
      peaks_.push_back(peak);
      for (std::size_t i = 0; i < contestants_.size(); ++i) keep(contestants_[i], samples[i]);
      if (peaks_.size() == 3) leave_behind();
    }
    if (peaks_.empty())
      throw Error(fmt::format(
          "bench: no quiet round in {}: the machine is busy. Stop other work and try again.",
          options_.most_rounds));
  }

  // The row of one of ours, against everything that is not ours.
  void fill(Row& row, std::size_t mine) const {
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      const Contestant& c = contestants_[i];
      if (i < ours_ && i != mine) continue;
      Timing timing = c.timing;
      timing.median = median(c.rounds);
      timing.spread = spread(c.rounds);
      std::vector<double> ratios;
      for (std::size_t r = 0; r < c.rounds.size(); ++r)
        ratios.push_back(c.rounds[r] / contestants_[mine].rounds[r]);
      timing.ratio = median(ratios);
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

 private:
  // Peers' threads spin for some milliseconds after a run on the CPU.
  void rest(int milliseconds) const {
    if (options_.peers && options_.plan.device.kind == DeviceKind::cpu)
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  static void keep(Contestant& c, const std::vector<double>& samples) {
    if (samples.empty()) return;
    c.rounds.push_back(median(samples));
    const double least = quantile(samples, 0);
    c.timing.minimum = c.timing.minimum > 0 ? std::min(c.timing.minimum, least) : least;
  }
  double best_other() const {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = ours_; i < contestants_.size(); ++i)
      if (contestants_[i].timing.whole) best = std::min(best, median(contestants_[i].rounds));
    return best;
  }
  // A peer far behind the best one can't be the best any more: its time is better spent on the
  // rest.
  void leave_behind() {
    const double best = best_other();
    for (std::size_t i = ours_; i < contestants_.size(); ++i)
      contestants_[i].in_race = median(contestants_[i].rounds) < 1.5 * best;
  }
  // Ours and the peers still in the race have settled.
  bool quiet() const {
    if (static_cast<int>(peaks_.size()) < options_.least_rounds) return false;
    const double best = best_other();
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      const bool matters = i < ours_ || median(contestants_[i].rounds) < 1.1 * best;
      if (matters && spread(contestants_[i].rounds) >= options_.quiet) return false;
    }
    return true;
  }

  const Options& options_;
  std::size_t ours_;
  std::vector<Contestant> contestants_;
  std::vector<double> peaks_;
  int dropped_ = 0;
};

}  // namespace

const Timing* Row::best_peer() const {
  const Timing* best = nullptr;
  for (const Timing& peer : peers)
    if (peer.whole && (!best || peer.ratio < best->ratio)) best = &peer;
  return best;
}

std::vector<Row> run(const Stage& given, const Options& options) {
  const Stage stage = reference::for_device(given, options.plan.device.kind);
  const Problem problem(stage);
  std::vector<Ours> ours;
  ours.emplace_back(stage, problem, options);
  if (options.both_modes && !stage.exact()) {
    Stage strict = stage;
    strict.strict = true;
    ours.emplace_back(strict, problem, options);
  }
  std::optional<Problem> in_bf16;
  if (options.both_types && stage.dtype == DType::f16) {
    Stage other = stage;
    other.dtype = DType::bf16;
    ours.emplace_back(other, in_bf16.emplace(other), options);
  }
  Race race(options, ours.size());
  for (const Ours& our : ours)
    race.add("convoy", [&] { return our.runs->turn(options.seconds_per_turn); });
  std::optional<UnfusedChain> unfused;
  if (options.unfused) {
    unfused.emplace(stage, problem.w, options.plan);
    race.add("unfused chain", [&] {
      return time_runs([&] { unfused->run(problem.operands); }, options.seconds_per_turn);
    });
  }
  nlohmann::json left_out = nlohmann::json::array(), versions;
  if (options.peers) {
    if (options.progress) options.progress("building the peers for " + to_text(stage));
    const nlohmann::json prepared = options.peers->prepare(stage);
    left_out = prepared.at("left_out");
    versions = prepared.at("versions");
    const nlohmann::json partial = prepared.value("partial", nlohmann::json::array());
    for (const std::string name : prepared.at("peers"))
      race.add(
          name, [&options, name] { return options.peers->time(name, options.seconds_per_turn); },
          std::find(partial.begin(), partial.end(), name) == partial.end());
  }
  race.run(to_text(stage), [&] { return ours[0].runs->peak_flops(); });

  std::vector<Row> rows;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    Row& row = ours[i].row;
    race.fill(row, i);
    row.left_out = left_out;
    row.versions = versions;
    const Shapes& shapes = ours[i].runs->plan().shapes();
    const double flops = 2 * static_cast<double>(shapes.macs * (stage.hold ? 1 : stage.t));
    row.gflops = 1e-9 * flops / row.ours.median;
    const auto bytes = [](Index elements, DType type) {
      return static_cast<double>(elements) * static_cast<double>(size_of(type));
    };
    const DType held = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
    row.bytes = bytes(shapes.x_elements, stage.dtype) + bytes(shapes.w_elements, held) +
                bytes(shapes.y_elements, stage.output_dtype());
    if (const double cycle = ours[i].runs->flops_a_cycle(); cycle > 0)
      row.clock_ghz = row.peak_gflops / cycle;
    if (options.bandwidth > 0)
      row.floor = std::max(1e-9 * flops / row.peak_gflops, row.bytes / options.bandwidth);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace convoy::bench
