// The best peer's time divided by ours, list by list and stage by stage.
#include <fmt/core.h>

#include <algorithm>

#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

const Scale& ratio_scale() {
  static const Scale scale = Scale::log(0.25, 16);
  return scale;
}

std::string scale_note() {
  return "¼ … <b>1</b> … 16 ×";
}

// With one process, what the rounds of both sides vary by: half of their interquartile ranges.
std::pair<double, double> range_of(const BenchRow& row) {
  if (row.most_ratio > row.least_ratio) return {row.least_ratio, row.most_ratio};
  double spread = row.ours.spread;
  for (const Contestant& peer : row.peers)
    if (peer.name == row.best_peer) spread += peer.spread;
  return {*row.ratio * std::max(0.0, 1 - spread / 2), *row.ratio * (1 + spread / 2)};
}

std::string peers_text(const BenchRow& row) {
  std::string text;
  for (const Contestant& peer : row.peers) {
    if (!text.empty()) text += ", ";
    text += escape(peer.name) + "&nbsp;" + ratio_text(peer.ratio);
    if (peer.partial) text += "&nbsp;(a&nbsp;part)";
  }
  return text;
}

std::string rows_table(const ResultsFile& file, bool gpu) {
  std::vector<Table::Column> columns{
      {"stage"}, {"kernel"}, {"µs", number_column}, {"of peak", number_column}};
  if (gpu) columns.insert(columns.end(), {{"× floor", number_column}});
  columns.insert(columns.end(), {{"best peer"},
                                 {"ratio", number_column},
                                 {"spread", number_column},
                                 {scale_note()},
                                 {"every peer’s ratio", prose_column}});
  Table table(file.name, columns);
  for (const BenchRow& row : file.rows) {
    std::vector<std::string> cells{
        code(row.stage), escape(kernel_and_tile(row)), short_number(row.ours.median_us),
        row.peak_gflops > 0 ? fmt::format("{:.0f} %", 100 * row.gflops / row.peak_gflops) : ""};
    if (gpu) cells.push_back(row.floor_us > 0 ? fmt::format("{:.2f}", row.times_floor()) : "");
    if (row.ratio) {
      const auto [low, high] = range_of(row);
      cells.insert(cells.end(),
                   {escape(row.best_peer), "<b>" + ratio_text(*row.ratio) + "</b>",
                    ratio_text(low) + "–" + ratio_text(high),
                    range_cell(ratio_scale(), low, *row.ratio, high), peers_text(row)});
    }
    table.add(cells);
  }
  return table.html();
}

std::string file_summary(const ResultsFile& file, const DeviceResults& device) {
  const std::string how = how_run(file, device.gpu);
  std::string text = fmt::format("{}: {}{}{}", escape(device.short_title),
                                 escape(list_title(list_of(file))), how.empty() ? "" : ", ", how);
  const std::vector<double> ratios = file.ratios();
  if (!ratios.empty())
    text += fmt::format(" — {:.2f} ({:.2f} to {:.2f})", geometric_mean(ratios),
                        *std::min_element(ratios.begin(), ratios.end()),
                        *std::max_element(ratios.begin(), ratios.end()));
  return text + fmt::format(", {} stages", file.rows.size());
}

}  // namespace

std::string ratios_section(const Results& results) {
  Table lists("Ratios of all lists", {{"device"},
                                      {"list"},
                                      {"run"},
                                      {"stages", number_column},
                                      {"mean", number_column},
                                      {"least", number_column},
                                      {"most", number_column},
                                      {"under 1", number_column},
                                      {scale_note()}});
  std::string tables;
  for (const DeviceResults& device : results.devices)
    for (const ResultsFile& file : device.files) {
      if (file.rows.empty()) continue;
      tables += details(file_summary(file, device), rows_table(file, device.gpu));
      const std::vector<double> ratios = file.ratios();
      if (ratios.empty()) continue;
      const double least = *std::min_element(ratios.begin(), ratios.end());
      const double most = *std::max_element(ratios.begin(), ratios.end());
      const double mean = geometric_mean(ratios);
      lists.add({escape(device.short_title), escape(list_title(list_of(file))),
                 how_run(file, device.gpu), fmt::format("{}", ratios.size()),
                 "<b>" + ratio_text(mean) + "</b>", ratio_text(least), ratio_text(most),
                 fmt::format("{}", std::count_if(ratios.begin(), ratios.end(),
                                                 [](double ratio) { return ratio < 1; })),
                 range_cell(ratio_scale(), least, mean, most)});
    }
  if (tables.empty()) return "";
  std::string text =
      "<p>The best peer’s time divided by ours: above 1 Convoy is faster. The dot is the geometric "
      "mean of a list or the ratio of a stage, the bar goes from the least to the most: of the "
      "list’s stages, of a stage’s processes (where there was one process: half of both "
      "interquartile ranges to either side).</p>\n";
  if (!lists.empty()) text += lists.html();
  return section("ratios", "Ratios, with their spread",
                 text + "<h3>Stage by stage</h3>\n<div class=filtered>\n" + tables + "</div>\n");
}

}  // namespace convoy::report
