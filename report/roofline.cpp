// Where each stage lies below the roof that arithmetic and memory leave it.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

/// Rows that share a roof.
struct Roof {
  std::string title;
  std::vector<const BenchRow*> rows;
  double bandwidth = 0;  // bytes/s
};

std::string roof_of(const BenchRow& row, const ResultsFile& file, bool gpu) {
  if (!gpu) return how_run(file, gpu);
  if (by_forced_kernel(file)) return "by window, which is not the chosen kernel";
  return dtype_in(row.stage) == "f32" ? "f32" : "f16, bf16 and u8";
}

std::vector<Roof> roofs_of(const DeviceResults& device) {
  std::vector<Roof> roofs;
  for (const ResultsFile& file : device.files)
    for (const BenchRow& row : file.rows) {
      if (row.gflops <= 0 || row.peak_gflops <= 0 || row.intensity() <= 0) continue;
      const std::string title = roof_of(row, file, device.gpu);
      auto at = std::find_if(roofs.begin(), roofs.end(),
                             [&](const Roof& roof) { return roof.title == title; });
      if (at == roofs.end()) at = roofs.insert(roofs.end(), Roof{title, {}, 0});
      at->rows.push_back(&row);
      at->bandwidth = std::max(at->bandwidth, file.copy_bandwidth);
    }
  // The most stages first; then default mode before strict, and more threads.
  const auto rank = [](const Roof& roof) {
    return std::tuple(roof.rows.size(), !roof.title.ends_with("strict mode"),
                      roof.rows.front()->threads);
  };
  std::stable_sort(roofs.begin(), roofs.end(),
                   [&](const Roof& a, const Roof& b) { return rank(a) > rank(b); });
  return roofs;
}

double middle_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Html title_of(const Roof& roof, const DeviceResults& device) {
  return escape(device.short_title + (roof.title.empty() ? "" : ", ") + roof.title);
}

Html drawn(const Roof& roof, const DeviceResults& device) {
  // TFLOP/s on a GPU.
  const double unit = device.gpu ? 1e-3 : 1;
  const char* const unit_name = device.gpu ? "TFLOP/s" : "GFLOP/s";
  std::vector<double> peaks;
  std::vector<DataPoint> ours;
  std::map<std::string, std::vector<DataPoint>> peers;
  double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
  const auto seen = [&](DataPoint point) {
    least_x = std::min(least_x, point.x), most_x = std::max(most_x, point.x);
    least_y = std::min(least_y, point.y), most_y = std::max(most_y, point.y);
    return point;
  };
  for (const BenchRow* row : roof.rows) {
    peaks.push_back(row->peak_gflops * unit);
    ours.push_back(seen({row->intensity(), row->gflops * unit}));
    for (const Contestant& peer : row->peers)
      if (!peer.partial)
        peers[std::string(library_of(peer.name))].push_back(
            seen({row->intensity(), row->gflops * unit * row->ours.median_us / peer.median_us}));
  }
  const double peak = device.gpu ? *std::max_element(peaks.begin(), peaks.end()) : middle_of(peaks);
  const double bandwidth = roof.bandwidth * 1e-9 * unit;
  Plot plot(
      fmt::format("Roofline of {}, {}: {} stages", device.short_title, roof.title,
                  roof.rows.size()),
      {Scale::log(least_x * 0.7, most_x * 1.4), "operations a byte (x, weights, y once each)", {}},
      {Scale::log(std::max(least_y * 0.7, peak * 1e-4), std::max(most_y, peak) * 2.2),
       unit_name,
       {}},
      340);
  const std::string dense = roof.rows.size() > 60 ? " dense" : "";
  for (const auto& [library, points] : peers) plot.dots(library_color(library) + dense, points);
  plot.dots("c0" + dense, ours);
  const double low = least_x * 0.7, high = most_x * 1.4;
  const double ridge = bandwidth > 0 ? peak / bandwidth : low;
  if (ridge < high) plot.line("roof", {{std::max(low, ridge), peak}, {high, peak}});
  if (bandwidth > 0 && ridge > low)
    plot.line("roof",
              {{low, low * bandwidth}, {std::min(high, ridge), std::min(high, ridge) * bandwidth}});
  plot.label({high, peak}, html("peak {} {}", short_number(peak), escape(unit_name)), "end", -7);
  std::vector<std::pair<std::string, std::string>> names{{"c0", "Convoy"}};
  for (const auto& [library, points] : peers)
    names.emplace_back(library_color(library), library_title(library));
  std::size_t times = 0;
  for (const auto& [library, points] : peers) times += points.size();
  Html caption = html("{}: {} stages{}.", title_of(roof, device), roof.rows.size(),
                      times > 0 ? html(", {} times of peers", grouped(double(times))) : Html());
  if (bandwidth > 0)
    caption += html(
        " The roof: copies at {:.2f} TB/s, and the peak at the highest clock that was seen; long "
        "runs are bound by power, and their clock and peak are lower.",
        roof.bandwidth * 1e-12);
  else
    caption += html(
        " The line is the FMA peak measured beside the stages (the median). Operations are those "
        "of a direct convolution; Winograd needs fewer, so its dots are above the line.");
  return figure(caption, legend(names), plot.svg());
}

}  // namespace

Html roofline_section(const Results& results) {
  Html text;
  for (const DeviceResults& device : results.devices) {
    bool first = true;
    for (const Roof& roof : roofs_of(device)) {
      text += details(html("{} — {} stages", title_of(roof, device), roof.rows.size()),
                      drawn(roof, device), first);
      first = false;
    }
  }
  if (text.empty()) return {};
  return section(
      "roofline", "Roofline: every stage and peer",
      html("<p>Higher is faster; on the line is as fast as the machine allows. Each stage's "
           "figures are in the tables under <a href=#ratios>ratios</a>.</p>\n") +
          text);
}

}  // namespace convoy::report
