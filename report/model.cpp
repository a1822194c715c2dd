// What the cost models predict beside what was measured.
#include <algorithm>
#include <cmath>
#include <map>

#include "convoy/error.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "report/gpu_facts.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

using nlohmann::json;

struct Prediction {
  std::string stage, kernel, tile;
  double predicted_us = 0, measured_us = 0;
  double factor() const { return predicted_us / measured_us; }
};

/// Of a stage all of whose tiles were measured: what the model picks beside the best of them.
struct Pick {
  Prediction pick;
  double best_us = 0;
  double regret() const { return pick.measured_us / best_us; }
};

/// The CPU that a record is of, where it tells its caches.
std::optional<Machine> cpu_of(const json& record) {
  try {
    const json& cpu = record.at("cpu");
    Machine machine;
    machine.device.kind = DeviceKind::cpu;
    set_isa(machine, record.at("isa").get<std::string>());
    machine.halves = cpu.at("halves");
    machine.mesh = cpu.at("mesh");
    machine.l1_bytes = cpu.at("l1_bytes");
    machine.l2_bytes = cpu.at("l2_bytes");
    machine.l3_bytes = cpu.at("l3_bytes");
    return with_threads(std::move(machine), std::clamp(record.at("threads").get<int>(), 1, 1024));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Whether the cost model of this build is that of the GPU which was measured.
std::optional<Machine> machine_of_file(const ResultsFile& file) {
  const auto device = file.json.find(file.json.contains("device") ? "device" : "machine");
  if (device != file.json.end() && *device == "NVIDIA H200") return h200_facts();
  return cpu_of(file.json);
}

std::optional<Tile> tile_named(const Kernel& kernel, const Stage& stage, const Machine& machine,
                               std::string_view name) {
  for (Tile& tile : kernel.tiles(stage, machine))
    if (tile.name == name) return std::move(tile);
  return std::nullopt;
}

std::optional<Prediction> predict(const std::string& text, const Stage& stage,
                                  const std::string& kernel_name, const std::string& tile_name,
                                  double measured_us, const Machine& machine) {
  const Kernel* const kernel = find_kernel(kernel_name, machine.device.kind);
  if (!kernel || !fits(*kernel, stage, machine)) return std::nullopt;
  const std::optional<Tile> tile = tile_named(*kernel, stage, machine, tile_name);
  if (!tile) return std::nullopt;
  return Prediction{text, kernel_name, tile_name, 1e6 * kernel->cost(stage, *tile, machine).seconds,
                    measured_us};
}

// Of the stages that were timed by the kernels that run them.
std::vector<Prediction> predictions_of(const ResultsFile& file, const Machine& machine) {
  std::vector<Prediction> all;
  for (const BenchRow& row : file.rows) try {
      const Stage stage = parse_stage(row.stage);
      if (auto found = predict(row.stage, stage, row.kernel, row.tile, row.ours.median_us, machine))
        all.push_back(std::move(*found));
    } catch (const Error&) {
      continue;  // a chain
    }
  return all;
}

// A measured tile: [kernel, tile, µs], or ["kernel.tile", µs].
struct MeasuredTile {
  std::string kernel, tile;
  double us = 0;
};
std::optional<MeasuredTile> measured_tile(const json& entry) {
  if (!entry.is_array() || entry.size() < 2 || !entry.back().is_number() ||
      !entry.front().is_string())
    return std::nullopt;
  MeasuredTile tile{entry.front().get<std::string>(), "", entry.back().get<double>()};
  if (entry.size() == 3 && entry[1].is_string()) {
    tile.tile = entry[1].get<std::string>();
  } else {
    const std::size_t point = tile.kernel.find('.');
    if (point == std::string::npos) return std::nullopt;
    tile.tile = tile.kernel.substr(point + 1);
    tile.kernel.resize(point);
  }
  if (!(tile.us > 0)) return std::nullopt;
  return tile;
}

std::vector<Pick> picks_of(const ResultsFile& file, const Machine& machine) {
  std::vector<Pick> picks;
  for (const json& row : file.json.at("rows")) try {
      const std::string text = row.at("stage").get<std::string>();
      const Stage stage = parse_stage(text);
      std::vector<MeasuredTile> tiles;
      for (const json& entry : row.at("tiles"))
        if (auto tile = measured_tile(entry)) tiles.push_back(std::move(*tile));
      // The ranked tiles of each kernel whose tiles were measured; the pick is the best predicted.
      std::map<std::string, std::map<std::string, double>> predicted;
      for (const MeasuredTile& tile : tiles) {
        if (predicted.contains(tile.kernel)) continue;
        auto& of_kernel = predicted[tile.kernel];
        const Kernel* const kernel = find_kernel(tile.kernel, machine.device.kind);
        if (!kernel || !fits(*kernel, stage, machine)) continue;
        for (const RankedTile& ranked : rank(*kernel, stage, machine))
          of_kernel[ranked.tile.name] = ranked.cost.seconds * 1e6;
      }
      Pick pick;
      pick.best_us = pick.pick.predicted_us = 1e300;
      for (const MeasuredTile& tile : tiles) {
        const auto& of_kernel = predicted[tile.kernel];
        const auto found = of_kernel.find(tile.tile);
        if (found == of_kernel.end()) continue;
        pick.best_us = std::min(pick.best_us, tile.us);
        if (found->second < pick.pick.predicted_us)
          pick.pick = {text, tile.kernel, tile.tile, found->second, tile.us};
      }
      if (pick.best_us < 1e300) picks.push_back(std::move(pick));
    } catch (const std::exception&) {
      continue;  // a row of another form, or a stage that is none any more
    }
  return picks;
}

Html model_plot(const std::vector<Prediction>& all, const std::string& title) {
  std::vector<DataPoint> points;
  double low = 1e300, high = 0;
  for (const Prediction& one : all) {
    points.push_back({one.measured_us, one.predicted_us});
    low = std::min({low, one.measured_us, one.predicted_us});
    high = std::max({high, one.measured_us, one.predicted_us});
  }
  low *= 0.8, high *= 1.25;
  Plot plot(title, {Scale::log(low, high), "measured, µs", {}},
            {Scale::log(low, high), "predicted, µs", {}}, 300);
  plot.dots("c0", points);
  plot.line("roof", {{low, low}, {high, high}});
  plot.line("c1", {{low * 1.25, low}, {high, high / 1.25}}, "dash");
  plot.line("c1", {{low, low * 1.25}, {high / 1.25, high}}, "dash");
  return figure(
      title,
      legend({{"c0", "a stage"}, {"roof", "as predicted"}, {"c1", "a quarter more or less"}}),
      plot.svg());
}

Html error_sentence(std::vector<Prediction>& all) {
  std::size_t near = 0;
  double logs = 0;
  for (const Prediction& one : all) {
    logs += std::abs(std::log(one.factor()));
    near += one.factor() > 0.8 && one.factor() < 1.25;
  }
  std::sort(all.begin(), all.end(), [](const Prediction& a, const Prediction& b) {
    return std::abs(std::log(a.factor())) > std::abs(std::log(b.factor()));
  });
  return html(
      "<p>{} stages: {:.0f} % of the predictions are within a quarter of the measured time. The "
      "factor between both is {:.2f} in the geometric mean, and {:.2f} at most.</p>\n",
      all.size(), 100.0 * static_cast<double>(near) / static_cast<double>(all.size()),
      std::exp(logs / static_cast<double>(all.size())),
      std::exp(std::abs(std::log(all.front().factor()))));
}

Html farthest_table(const std::vector<Prediction>& all) {
  Table table("Farthest predictions", {{"stage"},
                                       {"kernel, tile"},
                                       {"predicted, µs", number_column},
                                       {"measured, µs", number_column},
                                       {"predicted / measured", number_column}});
  for (std::size_t i = 0; i < std::min<std::size_t>(12, all.size()); ++i)
    table.add({code(all[i].stage), escape(all[i].kernel + " " + all[i].tile),
               short_number(all[i].predicted_us), short_number(all[i].measured_us),
               html("{:.2f}", all[i].factor())});
  return table.html();
}

Html predicted_part(std::vector<Prediction> all, const std::string& title) {
  if (all.empty()) return {};
  const Html sentence = error_sentence(all);
  return html("<h3>{}</h3>\n", escape(title)) + sentence + model_plot(all, title) +
         details("The farthest of them", farthest_table(all));
}

Html picks_part(std::vector<Pick> picks, const std::string& title) {
  if (picks.empty()) return {};
  std::sort(picks.begin(), picks.end(),
            [](const Pick& a, const Pick& b) { return a.regret() > b.regret(); });
  std::vector<double> regrets;
  std::size_t best = 0;
  std::vector<DataPoint> points;
  for (std::size_t i = 0; i < picks.size(); ++i) {
    regrets.push_back(picks[i].regret());
    best += picks[i].regret() < 1.01;
    points.push_back(
        {100.0 * static_cast<double>(i) / static_cast<double>(picks.size()), picks[i].regret()});
  }
  Plot plot("Cost of the picks", {Scale::linear(0, 100), "share of stages, per cent", {}},
            {Scale::linear(1, std::max(1.1, regrets.front())), "pick / best tile", {}}, 200);
  plot.dots("c0", points);
  Table table("Worst picks", {{"stage"},
                              {"pick"},
                              {"µs", number_column},
                              {"best, µs", number_column},
                              {"×", number_column}});
  for (std::size_t i = 0; i < std::min<std::size_t>(12, picks.size()); ++i)
    table.add({code(picks[i].pick.stage), escape(picks[i].pick.kernel + " " + picks[i].pick.tile),
               short_number(picks[i].pick.measured_us), short_number(picks[i].best_us),
               html("{:.2f}", picks[i].regret())});
  return html(
             "<h3>{}</h3>\n<p>{} stages with all their tiles measured. The model’s pick is the "
             "fastest, or within 1 % of it, for {:.0f} %; it takes {:.3f} × as long in the "
             "geometric mean, {:.2f} × at most.</p>\n",
             escape(title), picks.size(),
             100.0 * static_cast<double>(best) / static_cast<double>(picks.size()),
             geometric_mean(regrets), regrets.front()) +
         figure("The pick’s time over the best tile’s, the worst stage first", Html(), plot.svg()) +
         details("The worst picks", table.html());
}

}  // namespace

Html model_section(const Results& results) {
  Html text;
  bool gpu_left_out = false;
  for (const DeviceResults& device : results.devices) {
    std::vector<Prediction> all;
    Html picked;
    for (const ResultsFile& file : device.files) {
      if (file.kind != FileKind::bench && file.kind != FileKind::tiles) continue;
      const std::optional<Machine> machine = machine_of_file(file);
      gpu_left_out = gpu_left_out || (device.gpu && !machine && !has_gpu_kernels());
      if (!machine) continue;
      if (file.kind == FileKind::tiles) {
        std::vector<Pick> picks = picks_of(file, *machine);
        std::vector<Prediction> of_picks;
        for (const Pick& pick : picks) of_picks.push_back(pick.pick);
        picked +=
            picks_part(std::move(picks), device.short_title + ", " + file.name + ": the picks");
        if (!device.gpu) all.insert(all.end(), of_picks.begin(), of_picks.end());
      } else if (!by_forced_kernel(file)) {
        std::vector<Prediction> of_file = predictions_of(file, *machine);
        all.insert(all.end(), of_file.begin(), of_file.end());
      }
    }
    text +=
        predicted_part(std::move(all), device.short_title + ": predicted and measured") + picked;
  }
  if (gpu_left_out)
    text += html(
        "<p>The cost models of the GPU’s kernels are not in this build. A build with the preset "
        "<code>cuda</code> shows them, also without a GPU.</p>\n");
  if (text.empty()) return {};
  return section("model", "Cost model against measurement",
                 html("<p>Predictions of this build’s cost models for stages that were measured, "
                      "for the kernel and tile that ran. CPUs whose results do not contain their "
                      "caches are left out.</p>\n") +
                     text);
}

}  // namespace convoy::report
