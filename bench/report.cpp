// A row as JSON, CSV and a table.
#include <fmt/core.h>

#include <cmath>

#include "harness.hpp"

namespace convoy::bench {
namespace {

nlohmann::json timing_json(const Timing& timing, const Row& row) {
  const double flops = row.gflops * row.ours.median;  // 1e9 operations of one run
  nlohmann::json json = {{"name", timing.name},
                         {"minimum_us", timing.minimum * 1e6},
                         {"median_us", timing.median * 1e6},
                         {"spread", timing.spread},
                         {"ratio", timing.ratio},
                         {"share_of_peak", flops / timing.median / row.peak_gflops}};
  if (!timing.whole) json["partial"] = true;
  if (timing.apart > 0) {
    json["apart_us"] = timing.apart * 1e6;
    json["apart_ratio"] = timing.apart_ratio;
  }
  return json;
}

std::string where_known(double value) {
  return value > 0 ? fmt::format("{:.3f}", value) : "";
}

std::string where_timed(double seconds) {
  return seconds > 0 ? fmt::format("{:.1f}", seconds * 1e6) : "";
}

std::string cell_ratio(const Timing* peer) {
  return peer ? fmt::format("{:.2f}", peer->ratio) : "-";
}

}  // namespace

std::string method_of(DeviceKind device) {
  if (device == DeviceKind::cpu)
    return "each run on the host's clock, in turns of some milliseconds; rounds in which the FMA "
           "peak fell by a tenth are dropped";
  return "replays of a CUDA graph of 24 launches or more (24 ms of them where one takes longer "
         "than "
         "a millisecond) over buffers that together exceed the L2 three times, after a warm-up as "
         "long; launches may overlap (programmatic dependent launch), which shows on small stages; "
         "apart: a kernel that writes one word stands behind each launch, so that they can't, and "
         "its time is not subtracted";
}

nlohmann::json to_json(const Row& row) {
  nlohmann::json peers = nlohmann::json::array();
  for (const Timing& peer : row.peers) peers.push_back(timing_json(peer, row));
  const Timing* best = row.best_peer();
  nlohmann::json json = {{"stage", row.stage},
                         {"kernel", row.kernel},
                         {"tile", row.tile},
                         {"arithmetic", row.arithmetic},
                         {"threads", row.threads},
                         {"convoy", timing_json(row.ours, row)},
                         {"peers", peers},
                         {"left_out", row.left_out},
                         {"best_peer", best ? nlohmann::json(best->name) : nlohmann::json()},
                         {"ratio", best ? nlohmann::json(best->ratio) : nlohmann::json()},
                         {"gflops", row.gflops},
                         {"peak_gflops", row.peak_gflops},
                         {"rounds", row.rounds},
                         {"dropped_rounds", row.dropped},
                         {"quiet", row.quiet}};
  if (row.plan > 0) json["plan_us"] = row.plan * 1e6, json["pack_us"] = row.pack * 1e6;
  if (row.error) json["error"] = *row.error;
  if (!row.checked) json["checked"] = false;
  if (row.clock_ghz > 0) json["clock_ghz"] = row.clock_ghz;
  if (row.floor > 0) {
    json["bytes"] = row.bytes;
    json["floor_us"] = row.floor * 1e6;
  }
  if (const double ratio = row.apart_ratio(); ratio > 0) json["apart_ratio"] = ratio;
  if (!row.versions.is_null()) json["versions"] = row.versions;
  return json;
}

std::string csv_header() {
  return "stage,kernel,tile,threads,median_us,minimum_us,spread,gflops,peak_gflops,share_of_peak,"
         "best_peer,best_peer_us,ratio,rounds,quiet,apart_us,apart_ratio,plan_us,pack_us\n";
}

std::string to_csv(const Row& row) {
  const Timing* best = row.best_peer();
  // A stage's text holds commas (clip(0,6), keep(pre,act)).
  return fmt::format(
      "\"{}\",{},\"{}\",{},{:.3f},{:.3f},{:.4f},{:.2f},{:.2f},{:.4f},{},{},{},{},{},{},{},{},{}\n",
      row.stage, row.kernel, row.tile, row.threads, row.ours.median * 1e6, row.ours.minimum * 1e6,
      row.ours.spread, row.gflops, row.peak_gflops, row.gflops / row.peak_gflops,
      best ? best->name : "", best ? fmt::format("{:.3f}", best->median * 1e6) : "",
      best ? fmt::format("{:.4f}", best->ratio) : "", row.rounds, row.quiet ? 1 : 0,
      where_known(row.ours.apart * 1e6), where_known(row.apart_ratio()), where_timed(row.plan),
      where_timed(row.pack));
}

namespace {

std::string notes_of(const std::vector<Row>& rows) {
  std::string text =
      "GFLOP/s counts the operations of a direct convolution; of peak: share of the peak measured "
      "in the same rounds.\n";
  if (rows.empty()) return text;
  if (rows[0].floor > 0)
    text +=
        "floor: the larger of operations over that peak and bytes (x, weights, y once each) over "
        "the copy bandwidth.\n";
  if (!rows[0].peers.empty())
    text +=
        "ratio: the peer's time / Convoy's, the median over rounds that run all contestants in "
        "turn.\n";
  if (rows[0].ours.apart > 0)
    text +=
        "apart: with a separate kernel that writes one word after each run, so that runs can't "
        "overlap; its time is included.\n";
  return text;
}

// A line of a table whose columns are as wide as what stands in them: names to the left, numbers to
// the right. The first line has every column.
std::string aligned(const std::vector<std::string>& line,
                    const std::vector<std::vector<std::string>>& lines) {
  std::string text;
  for (std::size_t column = 0; column < line.size(); ++column) {
    std::size_t width = 0;
    for (const auto& other : lines)
      if (column < other.size()) width = std::max(width, other[column].size());
    const std::string& head = lines.front()[column];
    const bool name = head == "stage" || head == "kernel" || head == "best peer";
    if (column > 0) text += name ? "  " : " ";
    text += name ? fmt::format("{:<{}}", line[column], width)
                 : fmt::format("{:>{}}", line[column], width);
  }
  return text;
}

}  // namespace

std::string to_table(const std::vector<Row>& rows) {
  // A peer may be left out of some stages.
  const bool peers = std::any_of(rows.begin(), rows.end(),
                                 [](const Row& row) { return row.best_peer() != nullptr; });
  const bool floor = !rows.empty() && rows[0].floor > 0;
  const bool apart = !rows.empty() && rows[0].ours.apart > 0;
  const auto tenths = [](double value) { return fmt::format("{:.1f}", value); };
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string>* line = &lines.emplace_back();
  *line = {"stage", "kernel", "median us", "min us", "spread", "GFLOP/s", "of peak"};
  if (floor) line->insert(line->end(), {"floor us", "GHz"});
  if (apart) line->push_back("apart us");
  if (peers) line->insert(line->end(), {"best peer", "median us", "ratio"});
  if (apart && peers) line->push_back("apart");
  double log_sum = 0;
  int ratios = 0;
  for (const Row& row : rows) {
    line = &lines.emplace_back();
    *line = {row.stage,
             row.kernel,
             tenths(row.ours.median * 1e6),
             tenths(row.ours.minimum * 1e6),
             tenths(row.ours.spread * 100) + "%",
             tenths(row.gflops),
             tenths(100 * row.gflops / row.peak_gflops) + "%"};
    if (floor)
      line->insert(line->end(), {tenths(row.floor * 1e6), fmt::format("{:.2f}", row.clock_ghz)});
    if (apart) line->push_back(tenths(row.ours.apart * 1e6));
    if (const Timing* best = row.best_peer()) {
      line->insert(line->end(), {best->name, tenths(best->median * 1e6), cell_ratio(best)});
      if (apart) line->push_back(where_known(row.apart_ratio()).substr(0, 4));
      log_sum += std::log(best->ratio);
      ++ratios;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += aligned(lines[i], lines);
    if (i > 0 && !rows[i - 1].checked) text += "  not checked: too much for the oracle";
    text += i == 0 || rows[i - 1].quiet ? "\n" : "  noisy\n";
  }
  if (ratios > 1)
    text += fmt::format("geometric mean of the ratios over {} stages: {:.2f}\n", ratios,
                        std::exp(log_sum / ratios));
  return text + notes_of(rows);
}

}  // namespace convoy::bench
