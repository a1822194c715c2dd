// Spiking networks, two stages in one launch, builds against builds.
#include <algorithm>

#include "report/html.hpp"
#include "report/sections.hpp"
#include "report/svg.hpp"

namespace convoy::report {
namespace {

using nlohmann::json;

double value_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_number() ? found->get<double>()
                                                                           : 0;
}

std::string string_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : "";
}

Html network_table(const DeviceResults& device, const ResultsFile& file) {
  struct Line {
    std::string name;
    double speed = 0, latency = 0;
  };
  std::vector<Line> lines{{"Convoy", value_at(file.json, "images_per_second"),
                           value_at(file.json, "one_image_seconds")}};
  if (const auto peers = file.json.find("peers"); peers != file.json.end() && peers->is_object())
    for (const auto& [name, peer] : peers->items())
      lines.push_back(
          {name, value_at(peer, "images_per_second"), value_at(peer, "one_image_seconds")});
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.speed > b.speed; });
  const Scale scale = Scale::linear(0, lines.front().speed);
  Table table("A spiking network",
              {{"what"}, {"images a second"}, {"", number_column}, {"one image", number_column}});
  for (const Line& line : lines)
    table.add({escape(line.name), bar_cell(scale, line.speed, line.name == "Convoy" ? "c0" : "c1"),
               grouped(line.speed), time_text(line.latency)});
  return html("<h3>{}: {}, {:.0f} threads</h3>\n{}", escape(device.short_title),
              escape(string_at(file.json, "model")), value_at(file.json, "threads"), table.html());
}

Html two_stages_table(const DeviceResults& device, const ResultsFile& file) {
  const json& times = file.json.at("microseconds");
  if (!times.is_object() || times.empty()) return {};
  std::vector<std::pair<double, std::string>> lines;
  for (const auto& [name, time] : times.items())
    if (time.is_number()) lines.emplace_back(time.get<double>(), name);
  if (lines.empty()) return {};
  std::sort(lines.begin(), lines.end());
  const Scale scale = Scale::linear(0, lines.back().first);
  Table table("Two stages", {{"how"}, {"µs"}, {"", number_column}});
  for (const auto& [us, name] : lines)
    table.add({escape(name), bar_cell(scale, us, name.ends_with("launch") ? "c0" : "c1"),
               short_number(us)});
  return html("<h3>{}: two stages</h3>\n<p>{}, then {}.</p>\n{}", escape(device.short_title),
              code(string_at(file.json, "first")), code(string_at(file.json, "second")),
              table.html());
}

}  // namespace

Html others_section(const Results& results) {
  Html text;
  Table builds("Builds against builds", {{"device"},
                                         {"what"},
                                         {"stages", number_column},
                                         {"old / new", number_column},
                                         {"least", number_column}});
  for (const DeviceResults& device : results.devices)
    for (const ResultsFile& file : device.files) {
      if (file.kind == FileKind::network) text += network_table(device, file);
      if (file.kind == FileKind::two_stages) text += two_stages_table(device, file);
      if (file.kind == FileKind::two_builds && file.json.contains("rows"))
        builds.add({escape(device.short_title), escape(file.name),
                    html("{}", file.json.at("rows").size()),
                    html("{:.3f}", value_at(file.json, "geometric_mean")),
                    html("{:.3f}", value_at(file.json, "least_ratio"))});
    }
  if (!builds.empty()) text += html("<h3>Builds against builds</h3>\n{}", builds.html());
  return text.empty() ? Html() : section("others", "Networks, chains, builds", text);
}

}  // namespace convoy::report
