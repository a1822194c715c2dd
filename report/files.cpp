// What was read, by what it was measured, and what was skipped.
#include <fmt/core.h>

#include "report/html.hpp"
#include "report/sections.hpp"

namespace convoy::report {
namespace {

std::string said(const nlohmann::json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? escape(found->get<std::string>()) : "";
}

}  // namespace

std::string files_section(const Results& results) {
  Table table("Files", {{"device"},
                        {"file"},
                        {"measured on"},
                        {"commit"},
                        {"compiler"},
                        {"stages", number_column},
                        {"processes", number_column}});
  for (const DeviceResults& device : results.devices)
    for (const ResultsFile& file : device.files) {
      const bool dirty = file.json.contains("dirty") && file.json["dirty"] == true;
      table.add({escape(device.short_title), escape(file.name), said(file.json, "date"),
                 said(file.json, "commit") + (dirty ? " and changes" : ""),
                 said(file.json, "compiler"),
                 file.rows.empty() ? "" : fmt::format("{}", file.rows.size()),
                 file.rows.empty() ? "" : fmt::format("{}", file.processes)});
    }
  std::string skipped;
  for (const auto& [path, why] : results.skipped)
    skipped += "<li>" + code(path) + ": " + escape(why);
  if (!skipped.empty()) skipped = "<h3>Skipped</h3>\n<ul id=skipped>" + skipped + "</ul>\n";
  return section("files", "Files", skipped + table.html());
}

}  // namespace convoy::report
