#include "harness.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
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
      : x(stage.dtype, x_shape(stage)), w(DType::f32, w_shape(stage)), y(stage.output_dtype(), y_shape(stage)) {
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
    case DType::f32: tensor.data<float>()[i] = value; break;
    case DType::u8: tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(bits >> 24); break;
    default: store_half(tensor.view(), i, value); break;
  }
}

struct Contestant {
  Timing timing;
  std::vector<double> rounds;  // median of each round kept
  std::function<std::vector<double>()> turn;
};

template <class Run>
std::vector<double> time_runs(const Run& run, double seconds) {
  std::vector<double> samples;
  run();
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    run();
    samples.push_back(seconds_since(start));
  } while (samples.size() < 3 || seconds_since(begin) < seconds);
  return samples;
}

}  // namespace

const Timing* Row::best_peer() const {
  const Timing* best = nullptr;
  for (const Timing& peer : peers)
    if (!best || peer.ratio < best->ratio) best = &peer;
  return best;
}

Row run(const Stage& stage, const Options& options) {
  Row row;
  row.stage = stage;
  Problem problem(stage);
  const Plan plan(stage, problem.w, options.plan);
  row.kernel = plan.kernel();
  row.tile = plan.tile();
  row.arithmetic = plan.arithmetic();
  row.threads = plan.threads();
  row.error = checked_error(stage, problem.operands, problem.w, plan);

  std::vector<Contestant> contestants(1);
  contestants[0].timing.name = "convoy";
  contestants[0].turn = [&] {
    return time_runs([&] { plan.run(problem.operands).or_throw(); }, options.seconds_per_turn);
  };
  std::optional<UnfusedChain> unfused;
  if (options.unfused) {
    unfused.emplace(stage, problem.w, options.plan);
    Contestant chain;
    chain.timing.name = "unfused chain";
    chain.turn = [&] {
      return time_runs([&] { unfused->run(problem.operands); }, options.seconds_per_turn);
    };
    contestants.push_back(std::move(chain));
  }
  if (options.peers) {
    if (options.progress) options.progress("building the peers for " + to_text(stage));
    const nlohmann::json prepared = options.peers->prepare(stage);
    row.left_out = prepared.at("left_out");
    for (const std::string name : prepared.at("peers")) {
      Contestant peer;
      peer.timing.name = name;
      peer.turn = [&, name] { return options.peers->time(name, options.seconds_per_turn); };
      contestants.push_back(std::move(peer));
    }
  }

  std::vector<double> peaks;
  double best_peak = 0;
  const auto spread_of_all = [&] {
    double worst = 0;
    for (const Contestant& c : contestants) worst = std::max(worst, spread(c.rounds));
    return worst;
  };
  for (int round = 0; round < options.most_rounds; ++round) {
    if (options.progress)
      options.progress(fmt::format("round {} of at most {}: {}", round + 1, options.most_rounds, to_text(stage)));
    // Peers' threads spin for some milliseconds after a run.
    if (options.peers) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const double before = measure_peak_flops(row.threads, 0.002);
    std::vector<std::vector<double>> samples;
    for (Contestant& c : contestants) {
      samples.push_back(c.turn());
      if (options.peers) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const double peak = std::min(before, measure_peak_flops(row.threads, 0.002));
    best_peak = std::max(best_peak, peak);
    if (peak < 0.9 * best_peak) {
      ++row.dropped;
      continue;
    }
    peaks.push_back(peak);
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Contestant& c = contestants[i];
      c.rounds.push_back(median(samples[i]));
      const double least = quantile(samples[i], 0);
      c.timing.minimum = c.timing.minimum > 0 ? std::min(c.timing.minimum, least) : least;
    }
    row.rounds = static_cast<int>(peaks.size());
    if (row.rounds >= options.least_rounds && spread_of_all() < options.quiet) break;
  }
  if (row.rounds == 0) throw Error("bench: no quiet round in " + std::to_string(options.most_rounds) +
                                   ": the machine is busy. Stop other work and try again.");
  row.quiet = row.rounds >= options.least_rounds && spread_of_all() < options.quiet;
  for (Contestant& c : contestants) {
    c.timing.median = median(c.rounds);
    c.timing.spread = spread(c.rounds);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < c.rounds.size(); ++i) ratios.push_back(c.rounds[i] / contestants[0].rounds[i]);
    c.timing.ratio = median(ratios);
    if (&c == &contestants[0]) row.ours = c.timing;
    else row.peers.push_back(c.timing);
  }
  row.gflops = 2e-9 * static_cast<double>(plan.shapes().macs * (stage.hold ? 1 : stage.t)) / row.ours.median;
  row.peak_gflops = 1e-9 * median(peaks);
  return row;
}

}  // namespace convoy::bench
