// What a reader wants to know within a minute.
#include <algorithm>
#include <map>
#include <tuple>

#include "report/html.hpp"
#include "report/sections.hpp"

namespace convoy::report {
namespace {

bool counts(const ResultsFile& file) {
  return !file.rows.empty() && file.mode != "strict" && !by_forced_kernel(file) &&
         !file.name.starts_with("slow-paths");
}

// At least half of them are no larger.
double middle_value(const std::vector<double>& sorted) {
  return sorted[(sorted.size() - 1) / 2];
}

// Time / floor of each stage, sorted. On a CPU the floor is a direct convolution's operations at
// the FMA peak.
std::vector<double> distances_of(const ResultsFile& file, bool gpu) {
  std::vector<double> distances;
  for (const BenchRow& row : file.rows) {
    if (gpu && row.floor_us > 0) distances.push_back(row.times_floor());
    if (!gpu && row.gflops > 0 && row.peak_gflops > 0)
      distances.push_back(row.peak_gflops / row.gflops);
  }
  std::sort(distances.begin(), distances.end());
  return distances;
}

// The list that stands for a device: the target stages with two threads, else the most, else the
// longest list.
const ResultsFile* shown_of(const DeviceResults& device) {
  const ResultsFile* shown = nullptr;
  const auto rank = [&](const ResultsFile& file) {
    const std::string list = list_of(file);
    const bool targets = list == "targets" || list == "targets-cpu";
    return std::tuple(targets, file.threads == 2 ? 10'000 : file.threads, file.rows.size());
  };
  for (const ResultsFile& file : device.files)
    if (counts(file) && !distances_of(file, device.gpu).empty() &&
        (!shown || rank(file) > rank(*shown)))
      shown = &file;
  return shown;
}

Html roofline_answer(const Results& results) {
  Table table("Distance from the roofline", {{"device", prose_column},
                                             {"half within", number_column},
                                             {"closest", number_column},
                                             {"farthest", number_column},
                                             {"stages", number_column},
                                             {"list"}});
  for (const DeviceResults& device : results.devices) {
    const ResultsFile* const file = shown_of(device);
    if (!file) continue;
    const std::vector<double> distances = distances_of(*file, device.gpu);
    table.add({escape(device.short_title), html("<b>{} ×</b>", ratio_text(middle_value(distances))),
               html("{} ×", ratio_text(distances.front())),
               html("{} ×", ratio_text(distances.back())), html("{}", distances.size()),
               escape(title_and_how(*file, device.gpu))});
  }
  if (table.empty()) return {};
  return html(
      "<h3>How far from the roofline?</h3>\n<p>A stage’s time, as a multiple of its floor. On a "
      "GPU "
      "the floor is the larger of operations at the Tensor Cores’ peak and bytes at a copy’s "
      "bandwidth. On a CPU it is the operations of a direct convolution at the FMA peak; "
      "Winograd needs fewer, and goes below 1.</p>\n{}<p><a href=#roofline>All stages and "
      "peers</a></p>\n",
      table.html());
}

// The least ratio of a measurement.
struct Least {
  double ratio = 1e300;
  std::string stage, peer, device;
};

// How often we are as fast as the best peer, and the file of each list that is shown.
struct Races {
  std::size_t won = 0, all = 0;
  Least worst;
  std::vector<std::string> lists;  // those of the most devices first
  // Of each device, by list: two threads where there are such, else the most.
  std::vector<std::map<std::string, const ResultsFile*>> shown;

  explicit Races(const Results& results) : shown(results.devices.size()) {
    for (std::size_t d = 0; d < results.devices.size(); ++d)
      for (const ResultsFile& file : results.devices[d].files) {
        if (!counts(file) || file.ratios().empty()) continue;
        for (const BenchRow& row : file.rows) count(row, results.devices[d].short_title);
        show(file, d);
      }
    std::stable_sort(lists.begin(), lists.end(), [&](const std::string& a, const std::string& b) {
      return devices_of(a) > devices_of(b);
    });
  }

 private:
  void count(const BenchRow& row, const std::string& device) {
    if (!row.ratio) return;
    ++all;
    if (*row.ratio >= 1) ++won;
    if (*row.ratio < worst.ratio) worst = {*row.ratio, row.stage, row.best_peer, device};
  }
  void show(const ResultsFile& file, std::size_t device) {
    std::string list = list_of(file);
    if (list == "targets") list = "targets-cpu";
    if (std::find(lists.begin(), lists.end(), list) == lists.end()) lists.push_back(list);
    const ResultsFile*& place = shown[device][list];
    const auto rank = [](const ResultsFile& one) { return one.threads == 2 ? 1000 : one.threads; };
    if (!place || rank(file) > rank(*place)) place = &file;
  }
  std::ptrdiff_t devices_of(const std::string& list) const {
    return std::count_if(shown.begin(), shown.end(),
                         [&](const auto& of) { return of.contains(list); });
  }
};

Table table_of(const Races& races, const Results& results) {
  std::vector<Table::Column> columns{{"list", prose_column}};
  for (std::size_t d = 0; d < races.shown.size(); ++d)
    if (!races.shown[d].empty()) columns.push_back({results.devices[d].short_title, number_column});
  Table table("Ratio to the best peer", columns);
  for (const std::string& list : races.lists) {
    std::vector<Html> cells{escape(list_title(list))};
    for (const auto& of_device : races.shown) {
      if (of_device.empty()) continue;
      const auto found = of_device.find(list);
      if (found == of_device.end()) {
        cells.emplace_back();
        continue;
      }
      const std::vector<double> ratios = found->second->ratios();
      cells.push_back(html("<b>{}</b> ({})", ratio_text(geometric_mean(ratios)),
                           ratio_text(*std::min_element(ratios.begin(), ratios.end()))));
    }
    table.add(cells);
  }
  return table;
}

Html faster_answer(const Results& results) {
  const Races races(results);
  if (races.all == 0) return {};
  const Least& worst = races.worst;
  return html(
      "<h3>Who is faster, and by how much?</h3>\n<p>Convoy is at least as fast as the best "
      "peer in <b>{} of {}</b> measurements (of a stage on a machine, with one or several "
      "threads, default mode). {} Below: the best peer’s time divided by Convoy’s, the geometric "
      "mean of a list and, in brackets, its worst stage; on CPUs with two threads if that was "
      "measured.</p>\n{}<p><a href=#ratios>All lists, with their spread</a></p>\n",
      grouped(static_cast<double>(races.won)), grouped(static_cast<double>(races.all)),
      worst.ratio < 1 ? html("The worst: {:.2f} against {} for {} on {}.", worst.ratio,
                             escape(worst.peer), code(worst.stage), escape(worst.device))
                      : html("The smallest ratio is {:.2f}.", worst.ratio),
      table_of(races, results).html());
}

Html slot_answer(const std::vector<MappedStage>& mapped) {
  Html text;
  for (const MappedStage& stage : mapped) text += stage.slots;
  if (text.empty()) return {};
  return html(
      "<h3>What does a slot hold?</h3>\n{}<p><a href=#stages>Map, shared memory and pipeline</a>"
      "</p>\n",
      text);
}

}  // namespace

Html minute_section(const Results& results, const std::vector<MappedStage>& mapped) {
  const Html text = roofline_answer(results) + faster_answer(results) + slot_answer(mapped);
  return text.empty() ? Html() : section("minute", "In one minute", text);
}

}  // namespace convoy::report
