// What was read, by what it was measured, and what was skipped.
#include "report/html.hpp"
#include "report/sections.hpp"

namespace convoy::report {
namespace {

Html said(const nlohmann::json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? escape(found->get<std::string>()) : Html();
}

}  // namespace

Html files_section(const Results& results) {
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
                 said(file.json, "commit") + (dirty ? html(" and changes") : Html()),
                 said(file.json, "compiler"),
                 file.rows.empty() ? Html() : html("{}", file.rows.size()),
                 file.rows.empty() ? Html() : html("{}", file.processes)});
    }
  Html skipped;
  for (const auto& [path, why] : results.skipped)
    skipped += html("<li>{}: {}", code(path), escape(why));
  if (!skipped.empty()) skipped = html("<h3>Skipped</h3>\n<ul id=skipped>{}</ul>\n", skipped);
  return section("files", "Files", skipped + table.html());
}

}  // namespace convoy::report
