#include "harness.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "bench/check.hpp"
#include "convoy/error.hpp"
#include "core/machine.hpp"
#include "core/measure.hpp"
#include "peer_process.hpp"
#include "statistics.hpp"
#include "unfused.hpp"

namespace convoy::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Normal inputs: zeros and ReLU'd data run faster on some machines and are not what users have.
struct Problem {
  Tensor x, w, bias, scale, shift, y, pre, act, idx, membrane;
  Operands operands;

  explicit Problem(const Stage& stage)
      : x(stage.dtype, x_shape(stage)),
        w(DType::f32, w_shape(stage)),
        y(stage.output_dtype(), y_shape(stage)) {
    fill(x, 1, 1);
    fill(w, 2, 1 / std::sqrt(static_cast<float>(shapes_of(stage).gemm_k)));
    operands.x = x;
    operands.y = y;
    if (stage.bias) {
      bias = Tensor(DType::f32, {stage.k});
      fill(bias, 3, 1);
      operands.bias = bias;
    }
    if (stage.norm) {
      scale = Tensor(DType::f32, {stage.c});
      shift = Tensor(DType::f32, {stage.c});
      fill(scale, 4, 1 / 64.0F);
      fill(shift, 5, 1);
      operands.norm_scale = scale;
      operands.norm_shift = shift;
    }
    if (stage.keep.pre) operands.pre = pre = Tensor(stage.output_dtype(), pre_shape(stage));
    if (stage.keep.act) operands.act = act = Tensor(stage.output_dtype(), pre_shape(stage));
    if (stage.keep.idx) operands.idx = idx = Tensor(DType::i32, y_shape(stage));
  }

  static void fill(Tensor& tensor, unsigned seed, float scale) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    const Index count = tensor.elements();
    for (Index i = 0; i < count; ++i) store(tensor, i, normal(random), random());
  }
  static void store(Tensor& tensor, Index i, float value, unsigned bits);
};

void Problem::store(Tensor& tensor, Index i, float value, unsigned bits) {
  switch (tensor.view().dtype) {
    case DType::f32:
      tensor.data<float>()[i] = value;
      break;
    case DType::u8:
      tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(bits >> 24);
      break;
    default:
      store_half(tensor.view(), i, value);
      break;
  }
}

struct Contestant {
  Timing timing;
  std::function<std::vector<double>()> turn;
  std::vector<double> rounds = {};  // median of each round kept, from the first on
  bool in_race = true;
};

template <class Run>
std::vector<double> time_runs(const Run& run, double seconds) {
  std::vector<double> samples;
  run();
  const auto begin = Clock::now();
  double elapsed = 0;
  do {
    const auto start = Clock::now();
    run();
    samples.push_back(seconds_since(start));
    elapsed = seconds_since(begin);
  } while (elapsed < seconds || (samples.size() < 3 && elapsed < 4 * seconds));
  return samples;
}

// Ours in one mode, with the row that it will fill.
struct Ours {
  Plan plan;
  Row row;

  Ours(const Stage& stage, const Problem& problem, const Options& options)
      : plan(stage, problem.w, options.plan) {
    row.stage = stage;
    row.kernel = plan.kernel();
    row.tile = plan.tile();
    row.arithmetic = plan.arithmetic();
    row.threads = plan.threads();
    row.error = checked_error(stage, problem.operands, problem.w, plan);
  }
};

// The contestants of one stage, ours first, one for each mode.
class Race {
 public:
  Race(const Options& options, std::size_t ours) : options_(options), ours_(ours) {}
  void add(std::string name, std::function<std::vector<double>()> turn) {
    contestants_.push_back({.timing = {.name = std::move(name)}, .turn = std::move(turn)});
  }

  void run(const std::string& title, int threads) {
    double best_peak = 0;
    for (int round = 0; round < options_.most_rounds && !quiet(); ++round) {
      if (options_.progress)
        options_.progress(
            fmt::format("round {} of at most {}: {}", round + 1, options_.most_rounds, title));
      rest(10);
      const double before = measure_peak_flops(threads, 0.002);
      std::vector<std::vector<double>> samples;
      for (Contestant& c : contestants_) {
        samples.push_back(c.in_race ? c.turn() : std::vector<double>());
        rest(5);
      }
      const double peak = std::min(before, measure_peak_flops(threads, 0.002));
      best_peak = std::max(best_peak, peak);
      if (peak < 0.9 * best_peak) {
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
  // Peers' threads spin for some milliseconds after a run.
  void rest(int milliseconds) const {
    if (options_.peers) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
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
      best = std::min(best, median(contestants_[i].rounds));
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
    if (!best || peer.ratio < best->ratio) best = &peer;
  return best;
}

std::vector<Row> run(const Stage& stage, const Options& options) {
  Problem problem(stage);
  std::vector<Ours> ours;
  ours.emplace_back(stage, problem, options);
  if (options.both_modes && !stage.exact()) {
    Stage strict = stage;
    strict.strict = true;
    ours.emplace_back(strict, problem, options);
  }
  Race race(options, ours.size());
  for (const Ours& our : ours)
    race.add("convoy", [&] {
      return time_runs([&] { our.plan.run(problem.operands).or_throw(); },
                       options.seconds_per_turn);
    });
  std::optional<UnfusedChain> unfused;
  if (options.unfused) {
    unfused.emplace(stage, problem.w, options.plan);
    race.add("unfused chain", [&] {
      return time_runs([&] { unfused->run(problem.operands); }, options.seconds_per_turn);
    });
  }
  nlohmann::json left_out = nlohmann::json::array();
  if (options.peers) {
    if (options.progress) options.progress("building the peers for " + to_text(stage));
    const nlohmann::json prepared = options.peers->prepare(stage);
    left_out = prepared.at("left_out");
    for (const std::string name : prepared.at("peers"))
      race.add(name,
               [&options, name] { return options.peers->time(name, options.seconds_per_turn); });
  }
  race.run(to_text(stage), ours[0].row.threads);

  std::vector<Row> rows;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    Row& row = ours[i].row;
    race.fill(row, i);
    row.left_out = left_out;
    row.gflops = 2e-9 *
                 static_cast<double>(ours[i].plan.shapes().macs * (stage.hold ? 1 : stage.t)) /
                 row.ours.median;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace convoy::bench
