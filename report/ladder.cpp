// Each rung of the ladder, and the last rung without one thing.
#include <algorithm>

#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

using nlohmann::json;

double number_or_zero(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Registers, shared memory and occupancy of the kernel that multiplies.
std::vector<Html> resources_cells(const json& rung) {
  const auto launches = rung.find("launches");
  if (launches == rung.end() || !launches->is_array() || launches->empty() ||
      !launches->front().is_object())
    return {Html(), Html(), Html()};
  const json& first = launches->front();
  Html registers = html("{:.0f}", number_or_zero(first, "registers"));
  if (const double spilled = number_or_zero(first, "spilled_bytes"); spilled > 0)
    registers += html(" + {:.0f}&nbsp;B", spilled);
  return {registers, html("{:.0f}", number_or_zero(first, "shared_bytes") / 1024),
          html("{:.0f} %", 100 * number_or_zero(first, "occupancy"))};
}

Html rungs_table(const json& stage, double most) {
  Table table("Rungs of the ladder", {{"rung"},
                                      {"TFLOP/s", number_column},
                                      {""},
                                      {"× the rung before", number_column},
                                      {"claimed", number_column},
                                      {"adds", prose_column},
                                      {"µs", number_column},
                                      {"registers", number_column},
                                      {"shared, KiB", number_column},
                                      {"occupancy", number_column}});
  const Scale scale = Scale::log(0.2, std::max(most, 1.0));
  for (const json& rung : stage.at("rungs")) {
    const double speed = number_or_zero(rung, "tflops");
    const auto factor = [&](const char* key) {
      const double value = number_or_zero(rung, key);
      return value > 0 ? html("{:.2f}", value) : Html();
    };
    std::vector<Html> cells{code(text_or_empty(rung, "kernel")),
                            short_number(speed),
                            bar_cell(scale, speed),
                            factor("factor"),
                            factor("claimed"),
                            escape(text_or_empty(rung, "adds")),
                            short_number(number_or_zero(rung, "median_us"))};
    for (Html& cell : resources_cells(rung)) cells.push_back(std::move(cell));
    table.add(cells);
  }
  return table.html();
}

Html ablation_table(const json& stage) {
  Table table("The last rung without one thing", {{"without", prose_column},
                                                  {"× as long", number_column},
                                                  {""},
                                                  {"µs", number_column},
                                                  {"registers", number_column},
                                                  {"shared, KiB", number_column},
                                                  {"occupancy", number_column}});
  double most = 1;
  for (const json& rung : stage.at("rungs"))
    if (const auto other = rung.find("without"); other != rung.end() && other->is_object())
      most = std::max(most, number_or_zero(*other, "factor"));
  const Scale scale = Scale::linear(0, most);
  for (const json& rung : stage.at("rungs")) {
    const auto other = rung.find("without");
    if (other == rung.end() || !other->is_object()) continue;
    const double factor = number_or_zero(*other, "factor");
    std::vector<Html> cells{escape(text_or_empty(rung, "adds")), html("{:.2f}", factor),
                            bar_cell(scale, factor, factor > 1 ? "c1" : "c2"),
                            short_number(number_or_zero(*other, "median_us"))};
    for (Html& cell : resources_cells(*other)) cells.push_back(std::move(cell));
    table.add(cells);
  }
  if (table.empty()) return {};
  return html("<h4>Ablation: the last rung without one thing</h4>\n") + table.html();
}

Html one_ladder(const DeviceResults& device, const json& stage, bool open) {
  const auto rungs = stage.find("rungs");
  if (rungs == stage.end() || !rungs->is_array() || rungs->empty()) return {};
  double most = 0, slowest = 0, fastest = 1e300;
  for (const json& rung : *rungs) {
    if (!rung.is_object()) return {};
    most = std::max(most, number_or_zero(rung, "tflops"));
    const double us = number_or_zero(rung, "median_us");
    slowest = std::max(slowest, us);
    if (us > 0) fastest = std::min(fastest, us);
  }
  return details(html("{}: {} — from {} to {}", escape(device.short_title),
                      code(text_or_empty(stage, "stage")), time_text(slowest * 1e-6),
                      time_text(fastest * 1e-6)),
                 rungs_table(stage, most) + ablation_table(stage), open);
}

}  // namespace

Html ladder_section(const Results& results) {
  Html text;
  for (const DeviceResults& device : results.devices)
    for (const ResultsFile& file : device.files) {
      if (file.kind != FileKind::ladder) continue;
      for (const json& stage : file.json.at("stages"))
        if (stage.is_object()) text += one_ladder(device, stage, text.empty());
    }
  if (text.empty()) return {};
  return section("ladder", "The ladder, and its ablation",
                 html("<p>A convolution on Tensor Cores, optimised step by step: each rung is a "
                      "kernel that adds one thing to the rung above it in the table. Bars are "
                      "TFLOP/s on a logarithmic scale. The ablation takes one thing away from the "
                      "kernel that has all of them.</p>\n") +
                     text);
}

}  // namespace convoy::report
