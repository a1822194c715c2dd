// Over channels, over batches of the same number of pixels, and what a launch costs.
#include <algorithm>
#include <cmath>
#include <map>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

/// Stages that differ in one size only, by that size.
struct Swept {
  double size = 0;
  const BenchRow* row = nullptr;
};

// By the channels, or by the images; empty where a row's stage can't be read.
std::vector<Swept> swept(const ResultsFile& file, bool channels) {
  std::vector<Swept> all;
  for (const BenchRow& row : file.rows) try {
      const Stage stage = parse_stage(row.stage);
      all.push_back({static_cast<double>(channels ? stage.c : stage.n), &row});
    } catch (const Error&) {
      return {};
    }
  std::sort(all.begin(), all.end(), [](const Swept& a, const Swept& b) { return a.size < b.size; });
  return all;
}

struct Speeds {
  double unit = 1;
  const char* name = "GFLOP/s";
};
Speeds speeds_of(bool gpu) {
  return gpu ? Speeds{1e-3, "TFLOP/s"} : Speeds{};
}

Html sweep_plot(const std::vector<Swept>& points, const char* title, const char* x_title,
                bool gpu) {
  const Speeds speeds = speeds_of(gpu);
  std::map<std::string, std::vector<DataPoint>> lines;
  std::vector<DataPoint> ours, peaks;
  std::vector<double> ticks;
  double most = 0;
  for (const auto& [size, row] : points) {
    ours.push_back({size, row->gflops * speeds.unit});
    peaks.push_back({size, row->peak_gflops * speeds.unit});
    for (const Contestant& peer : row->peers)
      lines[peer.name].push_back(
          {size, row->gflops * speeds.unit * row->ours.median_us / peer.median_us});
    most = std::max({most, ours.back().y, peaks.back().y});
    ticks.push_back(size);
  }
  for (const auto& [name, line] : lines)
    for (const DataPoint& point : line) most = std::max(most, point.y);
  // Powers of two, every second where there are many.
  while (ticks.size() > 5) {
    std::vector<double> half;
    for (std::size_t i = 0; i < ticks.size(); i += 2) half.push_back(ticks[i]);
    ticks = half;
  }
  Plot plot(title, {Scale::log(points.front().size, points.back().size), x_title, std::move(ticks)},
            {Scale::linear(0, most * 1.08), speeds.name, {}}, 260);
  plot.line("roof", peaks, "dash");
  std::vector<std::pair<std::string, std::string>> names{{"c0", "Convoy"}};
  for (const auto& [name, line] : lines) {
    plot.line(library_color(library_of(name)), line);
    plot.dots(library_color(library_of(name)), line);
    names.emplace_back(
        library_color(library_of(name)),
        library_title(library_of(name)) + std::string(name.substr(library_of(name).size())));
  }
  names.emplace_back("roof", "peak at the clock then");
  plot.line("c0", ours);
  plot.dots("c0", ours);
  return figure(title, legend(names), plot.svg());
}

Html sweep_table(const std::vector<Swept>& points, const char* what, bool gpu) {
  const Speeds speeds = speeds_of(gpu);
  Table table(what, {{what, number_column},
                     {"stage"},
                     {"kernel"},
                     {"µs", number_column},
                     {"spread", number_column},
                     {speeds.name, number_column},
                     {"of peak", number_column},
                     {"GHz", number_column},
                     {"peers’ ratios"}});
  for (const auto& [size, row] : points) {
    const Html peers = joined(row->peers, ", ", [](const Contestant& peer) {
      return html("{} {:.2f}", escape(peer.name), peer.ratio);
    });
    table.add({grouped(size), code(row->stage), escape(kernel_and_tile(*row)),
               short_number(row->ours.median_us), html("{:.1f} %", 100 * row->ours.spread),
               short_number(row->gflops * speeds.unit),
               html("{:.0f} %", 100 * row->gflops / std::max(row->peak_gflops, 1e-9)),
               row->clock_ghz > 0 ? html("{:.2f}", row->clock_ghz) : Html(), peers});
  }
  return table.html();
}

Html k_sweep(const DeviceResults& device) {
  const ResultsFile* const file = device.find("k-sweep");
  if (!file) return {};
  const std::vector<Swept> points = swept(*file, true);
  if (points.size() < 2) return {};
  return html(
             "<h3 id=k-sweep>K sweep: {}</h3>\n<p>A 1×1 stage is a product of matrices, "
             "whose depth grows here. Short sums wait for memory and for the launch. "
             "The dashed line is the peak at the clock then: long runs are bound by power, the "
             "clock falls, and the curve ends flat below it.</p>\n",
             escape(device.short_title)) +
         sweep_plot(points, "Speed over the number of channels (the GEMM’s K)", "channels",
                    device.gpu) +
         details("The figures of the K sweep", sweep_table(points, "channels", device.gpu));
}

Html same_pixels(const DeviceResults& device) {
  const ResultsFile* const file = device.find("same-pixels");
  if (!file) return {};
  const std::vector<Swept> points = swept(*file, false);
  if (points.size() < 2) return {};
  double least = 1e300, most = 0;
  for (const auto& [size, row] : points) {
    least = std::min(least, row->ours.median_us);
    most = std::max(most, row->ours.median_us);
  }
  return html(
             "<h3 id=same-pixels>Shape invariance: {}</h3>\n<p>The same N·H·W as few large "
             "images or as many small ones: {} to {}, so that the shape of the batch "
             "changes the time by {:.0f} % at most.</p>\n",
             escape(device.short_title), time_text(least * 1e-6), time_text(most * 1e-6),
             100 * (most / least - 1)) +
         sweep_plot(points, "Speed over the number of images, N·H·W the same", "images",
                    device.gpu) +
         details("The figures of shape invariance", sweep_table(points, "images", device.gpu));
}

// A line through the cycles: what is left at no channels is the launch, the prologue and the
// epilogue.
Html launch_split(const DeviceResults& device) {
  const ResultsFile* const file = device.find("launch-split");
  if (!file) return {};
  const std::vector<Swept> points = swept(*file, true);
  if (points.size() < 3) return {};
  std::vector<DataPoint> cycles;
  double x = 0, y = 0;
  for (const auto& [size, row] : points) {
    if (row->clock_ghz <= 0) return {};
    cycles.push_back({size / 64, 1e3 * row->ours.median_us * row->clock_ghz});
    x += cycles.back().x, y += cycles.back().y;
  }
  const auto count = static_cast<double>(cycles.size());
  x /= count, y /= count;
  double above = 0, below = 0;
  for (const DataPoint& point : cycles) {
    above += (point.x - x) * (point.y - y);
    below += (point.x - x) * (point.x - x);
  }
  if (below <= 0) return {};
  const double slope = above / below, head = y - slope * x;
  Plot plot("Cycles over blocks of 64 channels",
            {Scale::linear(0, cycles.back().x), "blocks of 64 channels", {}},
            {Scale::linear(0, cycles.back().y * 1.05), "cycles", {}}, 240);
  plot.line("c1", {{0, head}, {cycles.back().x, head + slope * cycles.back().x}}, "dash");
  plot.dots("c0", cycles);
  return html(
             "<h3 id=launch>Head, loop and tail of a launch: {}</h3>\n<p>One tile a multiprocessor "
             "over ever more channels. A line through the cycles leaves <b>{}</b> for launch, "
             "prologue and epilogue, and <b>{}</b> for each 64 channels.</p>\n",
             escape(device.short_title), grouped(head), grouped(slope)) +
         figure("Cycles of a launch over its channels",
                legend({{"c0", "measured"}, {"c1", "the line"}}), plot.svg()) +
         details("The figures of a launch", sweep_table(points, "channels", device.gpu));
}

}  // namespace

Html sweeps_section(const Results& results) {
  Html text;
  for (const DeviceResults& device : results.devices)
    text += k_sweep(device) + same_pixels(device) + launch_split(device);
  return text.empty() ? Html() : section("sweeps", "Sweeps: channels, batches, launches", text);
}

}  // namespace convoy::report
