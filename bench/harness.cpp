#include "harness.hpp"

#include <algorithm>

#include "bench/chains.hpp"
#include "bench/plan_times.hpp"
#include "bench/race.hpp"
#include "bench/runs.hpp"
#include "peer_process.hpp"
#include "reference/reference.hpp"
#include "unfused.hpp"

namespace convoy::bench {
namespace {

// Ours in one mode, with the row that it will fill.
struct Ours {
  std::unique_ptr<Runs> runs;
  Row row;

  Ours(const Stage& stage, const Problem& problem, const Options& options)
      : runs(make_runs(stage, problem, options.plan, options.seconds_per_turn, options.apart)) {
    const Plan& plan = runs->plan();
    row.stage = to_text(stage);
    row.kernel = plan.kernel();
    row.tile = plan.tile();
    row.arithmetic = plan.arithmetic();
    row.threads = plan.threads();
    row.error = runs->error();
    const PlanTimes times = time_plan(stage, problem.w, options.plan);
    row.plan = times.plan;
    row.pack = times.pack;
  }
};

// The stage, and with both_modes (both_types) its twin in strict mode (in bf16).
std::vector<Ours> all_of_ours(const Stage& stage, const Problem& problem, const Options& options,
                              std::optional<Problem>& in_bf16) {
  std::vector<Ours> ours;
  ours.emplace_back(stage, problem, options);
  if (options.both_modes && !stage.exact()) {
    Stage strict = stage;
    strict.strict = true;
    ours.emplace_back(strict, problem, options);
  }
  if (options.both_types && stage.dtype == DType::f16) {
    Stage other = stage;
    other.dtype = DType::bf16;
    ours.emplace_back(other, in_bf16.emplace(other), options);
  }
  return ours;
}

bool among(const nlohmann::json& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Builds the peers for the stage and adds them. Returns what they said.
nlohmann::json add_peers(Race& race, const Stage& stage, const Options& options) {
  if (options.progress) options.progress("building the peers for " + to_text(stage));
  PeerProcess& peers = *options.peers;
  const double seconds = options.seconds_per_turn;
  nlohmann::json prepared = peers.prepare(stage, options.apart);
  const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json partial = prepared.value("partial", none);
  const nlohmann::json apart = prepared.value("apart", none);
  for (const std::string name : prepared.at("peers")) {
    Contestant peer;
    peer.timing.name = name;
    peer.timing.whole = !among(partial, name);
    peer.turn = [&peers, seconds, name] { return peers.time(name, seconds, false); };
    if (options.apart && among(apart, name))
      peer.apart = [&peers, seconds, name] { return peers.time(name, seconds, true); };
    race.add(std::move(peer));
  }
  return prepared;
}

// What follows from the times and the sizes of the stage.
void add_rates(Row& row, const Runs& runs, const Options& options) {
  const Stage& stage = runs.plan().stage();
  const Shapes& shapes = runs.plan().shapes();
  const double flops = flops_of(stage);
  row.gflops = 1e-9 * flops / row.ours.median;
  const auto bytes = [](Index elements, DType type) {
    return static_cast<double>(elements) * static_cast<double>(size_of(type));
  };
  const DType held = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
  row.bytes = bytes(shapes.x_elements, stage.dtype) + bytes(shapes.w_elements, held) +
              bytes(shapes.y_elements, stage.output_dtype());
  if (const double cycle = runs.flops_a_cycle(); cycle > 0) row.clock_ghz = row.peak_gflops / cycle;
  if (options.bandwidth > 0)
    row.floor = std::max(1e-9 * flops / row.peak_gflops, row.bytes / options.bandwidth);
}

}  // namespace

const Timing* Row::best_peer() const {
  const Timing* best = nullptr;
  for (const Timing& peer : peers)
    if (peer.whole && (!best || peer.ratio < best->ratio)) best = &peer;
  return best;
}

double Row::apart_ratio() const {
  double least = 0;
  for (const Timing& peer : peers)
    if (peer.whole && peer.apart_ratio > 0)
      least = least > 0 ? std::min(least, peer.apart_ratio) : peer.apart_ratio;
  return least;
}

std::vector<Row> run(const Stage& given, const Options& options) {
  const Stage stage = reference::for_device(given, options.plan.device.kind);
  const Problem problem(stage);
  std::optional<Problem> in_bf16;
  std::vector<Ours> ours = all_of_ours(stage, problem, options, in_bf16);
  const double seconds = options.seconds_per_turn;
  Race race(options, ours.size());
  for (const Ours& our : ours) {
    Runs* runs = our.runs.get();
    Contestant mine{.turn = [runs, seconds] { return runs->turn(seconds); }};
    if (options.apart) mine.apart = [runs, seconds] { return runs->turn_apart(seconds); };
    mine.timing.name = "convoy";
    race.add(std::move(mine));
  }
  std::optional<UnfusedChain> unfused;
  if (options.unfused) {
    unfused.emplace(stage, problem.w, options.plan);
    Contestant chain{
        .turn = [&] { return time_runs([&] { unfused->run(problem.operands); }, seconds); }};
    chain.timing.name = "unfused chain";
    race.add(std::move(chain));
  }
  nlohmann::json prepared;
  if (options.peers) prepared = add_peers(race, stage, options);
  race.run(to_text(stage), [&] { return ours[0].runs->peak_flops(); });

  std::vector<Row> rows;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    Row& row = ours[i].row;
    race.fill(row, i);
    if (options.peers) {
      row.left_out = prepared.at("left_out");
      row.versions = prepared.at("versions");
      row.peers_method = prepared.value("method", std::string());
    }
    add_rates(row, *ours[i].runs, options);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace convoy::bench
