// The best peer's time divided by ours, list by list and stage by stage.
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

Html scale_note() {
  return html("¼ … <b>1</b> … 16 ×");
}

// With one process, what the rounds of both sides vary by: half of their interquartile ranges.
std::pair<double, double> range_of(const BenchRow& row) {
  if (row.most_ratio > row.least_ratio) return {row.least_ratio, row.most_ratio};
  double spread = row.ours.spread;
  for (const Contestant& peer : row.peers)
    if (peer.name == row.best_peer) spread += peer.spread;
  return {*row.ratio * std::max(0.0, 1 - spread / 2), *row.ratio * (1 + spread / 2)};
}

Html peers_text(const BenchRow& row) {
  return joined(row.peers, ", ", [](const Contestant& peer) {
    return html("{}&nbsp;{}{}", escape(peer.name), ratio_text(peer.ratio),
                peer.partial ? html("&nbsp;(a&nbsp;part)") : Html());
  });
}

Html rows_table(const ResultsFile& file, bool gpu) {
  std::vector<Table::Column> columns{{"stage"},
                                     {"ratio", number_column},
                                     {scale_note()},
                                     {"spread", number_column},
                                     {"best peer"},
                                     {"µs", number_column},
                                     {"of peak", number_column}};
  if (gpu) columns.push_back({"× floor", number_column});
  columns.insert(columns.end(), {{"kernel"}, {"every peer’s ratio"}});
  Table table(file.name, columns);
  for (const BenchRow& row : file.rows) {
    std::vector<Html> cells{code(row.stage)};
    if (row.ratio) {
      const auto [low, high] = range_of(row);
      cells.insert(cells.end(),
                   {html("<b>{}</b>", ratio_text(*row.ratio)),
                    range_cell(ratio_scale(), low, *row.ratio, high),
                    html("{}–{}", ratio_text(low), ratio_text(high)), escape(row.best_peer)});
    } else {
      cells.resize(5);
    }
    cells.push_back(short_number(row.ours.median_us));
    cells.push_back(row.peak_gflops > 0 ? html("{:.0f} %", 100 * row.gflops / row.peak_gflops)
                                        : Html());
    if (gpu) cells.push_back(row.floor_us > 0 ? ratio_text(row.times_floor()) : Html());
    cells.push_back(escape(kernel_and_tile(row)));
    cells.push_back(peers_text(row));
    table.add(cells);
  }
  return table.html();
}

Html file_summary(const ResultsFile& file, const DeviceResults& device) {
  Html text = html("{}: {}", escape(device.short_title), escape(title_and_how(file, device.gpu)));
  const std::vector<double> ratios = file.ratios();
  if (!ratios.empty())
    text += html(" — {:.2f} ({:.2f} to {:.2f})", geometric_mean(ratios),
                 *std::min_element(ratios.begin(), ratios.end()),
                 *std::max_element(ratios.begin(), ratios.end()));
  return text + html(", {} stages", file.rows.size());
}

}  // namespace

Html ratios_section(const Results& results) {
  Html lists, tables;
  for (const DeviceResults& device : results.devices) {
    Table table("Ratios on " + device.short_title, {{"list", prose_column},
                                                    {"mean", number_column},
                                                    {scale_note()},
                                                    {"least", number_column},
                                                    {"most", number_column},
                                                    {"under 1", number_column},
                                                    {"stages", number_column}});
    for (const ResultsFile& file : device.files) {
      if (file.rows.empty()) continue;
      tables += details(file_summary(file, device), rows_table(file, device.gpu));
      const std::vector<double> ratios = file.ratios();
      if (ratios.empty()) continue;
      const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
      const double mean = geometric_mean(ratios);
      const auto lost =
          std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio < 1; });
      table.add({escape(title_and_how(file, device.gpu)), html("<b>{}</b>", ratio_text(mean)),
                 range_cell(ratio_scale(), *least, mean, *most), ratio_text(*least),
                 ratio_text(*most), html("{}", lost), html("{}", ratios.size())});
    }
    if (!table.empty()) lists += html("<h3>{}</h3>\n{}", escape(device.title), table.html());
  }
  if (tables.empty()) return {};
  return section("ratios", "Ratios, with their spread",
                 html("<p>The best peer’s time divided by Convoy’s: above 1 Convoy is faster. The "
                      "dot is the geometric mean of a list or the ratio of a stage. The bar goes "
                      "from the smallest to the largest ratio: for a list over its stages, for a "
                      "stage over its processes (with one process: half of both interquartile "
                      "ranges to either side).</p>\n{}<h3>Stage by stage</h3>\n"
                      "<div class=filtered>\n{}</div>\n",
                      lists, tables));
}

}  // namespace convoy::report
