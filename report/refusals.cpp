// Who could not run what, and why: kernels of ours, and peers.
#include <map>

#include "report/html.hpp"
#include "report/sections.hpp"

namespace convoy::report {
namespace {

struct Counted {
  std::size_t count = 0;
  std::string example;
};

Html refused_kernels(const std::vector<StageView>& views) {
  Table table("Kernels that refuse", {{"stage"}, {"on"}, {"kernel"}, {"why", prose_column}});
  for (const StageView& view : views)
    for (const auto& line : view.explanation.kernels) {
      if (line.refusals.empty()) continue;
      table.add({code(view.stage), escape(view.where), code(line.kernel),
                 joined(line.refusals, "; ", escape)});
    }
  return table.empty() ? Html() : html("<h3>Convoy’s kernels</h3>\n{}", table.html());
}

Html refused_peers(const Results& results) {
  Table table(
      "Peers that were left out",
      {{"device"}, {"peer"}, {"why", prose_column}, {"stages", number_column}, {"for instance"}});
  for (const DeviceResults& device : results.devices) {
    std::map<std::pair<std::string, std::string>, Counted> reasons;
    for (const ResultsFile& file : device.files)
      for (const BenchRow& row : file.rows)
        for (const auto& [name, why] : row.left_out) {
          Counted& counted = reasons[{name, why}];
          ++counted.count;
          counted.example = row.stage;
        }
    for (const auto& [reason, counted] : reasons)
      table.add({escape(device.short_title), escape(reason.first), escape(reason.second),
                 html("{}", counted.count), code(counted.example)});
  }
  return table.empty() ? Html() : html("<h3>Peers</h3>\n{}", table.html());
}

Html failed_stages(const Results& results) {
  Table table("Stages that failed", {{"device"}, {"list"}, {"stage"}, {"why", prose_column}});
  for (const DeviceResults& device : results.devices)
    for (const ResultsFile& file : device.files) {
      const auto failed = file.json.find("failed");
      if (failed == file.json.end() || !failed->is_array()) continue;
      for (const auto& one : *failed) {
        if (!one.is_object()) continue;
        table.add({escape(device.short_title), escape(file.name),
                   code(one.value("stage", nlohmann::json("?")).dump()),
                   escape(one.value("why", nlohmann::json("not told")).dump())});
      }
    }
  if (table.empty()) return {};
  return html("<h3>Stages that could not be measured</h3>\n{}", table.html());
}

}  // namespace

Html refusals_section(const Results& results, const std::vector<StageView>& views) {
  const Html text = refused_kernels(views) + refused_peers(results) + failed_stages(results);
  return text.empty() ? Html() : section("refusals", "Refusals", text);
}

}  // namespace convoy::report
