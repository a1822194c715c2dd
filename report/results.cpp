#include "report/results.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "core/dtype.hpp"
#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy::report {
namespace {

using nlohmann::json;

// The member of an object, or null.
const json* member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? &*found : nullptr;
}

std::string text_at(const json& object, const char* key, const std::string& otherwise = "") {
  const json* const value = member(object, key);
  return value && value->is_string() ? value->get<std::string>() : otherwise;
}

// A finite number that is not below 0; `otherwise` where there is none.
double number_at(const json& object, const char* key, double otherwise = 0) {
  const json* const value = member(object, key);
  if (!value || value->is_null()) return otherwise;
  if (!value->is_number())
    throw InvalidFile(fmt::format("\"{}\" is {}, expected a number", key, value->type_name()));
  const auto number = value->get<double>();
  if (!std::isfinite(number) || number < 0)
    throw InvalidFile(
        fmt::format("\"{}\" is {}, expected a number that is finite and not below 0", key, number));
  return number;
}

double positive_at(const json& object, const char* key) {
  const double number = number_at(object, key, 0);
  if (number == 0) throw InvalidFile(fmt::format("no \"{}\" above 0", key));
  return number;
}

Contestant contestant_of(const json& object) {
  if (!object.is_object()) throw InvalidFile("a contestant that is no object");
  Contestant contestant;
  contestant.name = text_at(object, "name");
  contestant.median_us = positive_at(object, "median_us");
  contestant.spread = number_at(object, "spread");
  contestant.ratio = number_at(object, "ratio");
  const json* const partial = member(object, "partial");
  contestant.partial = partial && partial->is_boolean() && partial->get<bool>();
  return contestant;
}

// Of files from before bytes were written: x, weights and y once each.
double bytes_of(const std::string& text, bool gpu) {
  try {
    const Stage stage = parse_stage(text);
    const Shapes shapes = shapes_of(stage);
    return static_cast<double>(size_of(stage.dtype)) * static_cast<double>(shapes.x_elements) +
           static_cast<double>(size_of(stage.dtype == DType::u8 ? DType::f32 : stage.dtype)) *
               static_cast<double>(shapes.w_elements) +
           static_cast<double>(size_of(stage.output_dtype(gpu))) *
               static_cast<double>(shapes.y_elements);
  } catch (const Error&) {
    return 0;  // a chain, or a stage that is none any more
  }
}

void read_spread(const json& object, BenchRow& row) {
  row.least_ratio = row.most_ratio = *row.ratio;
  const json* const all = member(object, "ratios_of_processes");
  if (!all || !all->is_array()) return;
  for (const json& one : *all)
    if (one.is_number() && one.get<double>() > 0) {
      row.least_ratio = std::min(row.least_ratio, one.get<double>());
      row.most_ratio = std::max(row.most_ratio, one.get<double>());
    }
}

BenchRow row_of(const json& object, bool gpu) {
  BenchRow row;
  row.stage = text_at(object, "stage");
  if (row.stage.empty()) throw InvalidFile("no \"stage\"");
  const json* const ours = member(object, "convoy");
  if (!ours) throw InvalidFile("no \"convoy\"");
  row.ours = contestant_of(*ours);
  row.kernel = text_at(object, "kernel");
  row.tile = text_at(object, "tile");
  row.threads = static_cast<int>(std::min(1e6, number_at(object, "threads")));
  row.best_peer = text_at(object, "best_peer");
  row.gflops = number_at(object, "gflops");
  row.peak_gflops = number_at(object, "peak_gflops");
  row.bytes = number_at(object, "bytes");
  if (row.bytes == 0) row.bytes = bytes_of(row.stage, gpu);
  row.clock_ghz = number_at(object, "clock_ghz");
  row.floor_us = number_at(object, "floor_us");
  if (const double ratio = number_at(object, "ratio"); ratio > 0) {
    row.ratio = ratio;
    read_spread(object, row);
  }
  const json* const quiet = member(object, "quiet");
  row.quiet = !quiet || !quiet->is_boolean() || quiet->get<bool>();
  if (const json* const peers = member(object, "peers"); peers && peers->is_array())
    for (const json& peer : *peers) row.peers.push_back(contestant_of(peer));
  if (const json* const left = member(object, "left_out"); left && left->is_array())
    for (const json& one : *left)
      row.left_out.emplace_back(text_at(one, "name", "a peer"), text_at(one, "why", "not told"));
  return row;
}

bool rows_have(const json& object, const char* key) {
  const json* const rows = member(object, "rows");
  return rows && rows->is_array() && !rows->empty() && member(rows->front(), key);
}

// Any other record of a measurement: what it shows is in other documents.
bool is_record(const json& object) {
  return member(object, "machine") || member(object, "device") || member(object, "architecture") ||
         member(object, "gpu") || member(object, "convoy") ||
         (member(object, "lines") && member(object, "shown"));  // bench/trace_split.py
}

FileKind kind_of(const json& object) {
  if (member(object, "builds")) return FileKind::two_builds;
  if (rows_have(object, "convoy")) return FileKind::bench;
  if (rows_have(object, "tiles")) return FileKind::tiles;
  if (const json* const stages = member(object, "stages");
      stages && stages->is_array() && !stages->empty() && member(stages->front(), "rungs"))
    return FileKind::ladder;
  if (member(object, "images_per_second")) return FileKind::network;
  if (member(object, "microseconds")) return FileKind::two_stages;
  if (is_record(object)) return FileKind::other;
  throw InvalidFile(
      "JSON, but no record of a measurement: none of \"rows\", \"stages\", \"builds\" and "
      "\"machine\" that convoy and its scripts write");
}

ResultsFile file_of(const std::string& name, json object) {
  if (!object.is_object())
    throw InvalidFile(fmt::format("JSON, but found {}, expected an object", object.type_name()));
  ResultsFile file;
  file.name = name;
  file.kind = kind_of(object);
  if (file.kind == FileKind::bench) {
    file.copy_bandwidth = number_at(object, "copy_bandwidth");
    file.mode = text_at(object, "mode", "default");
    file.threads = static_cast<int>(std::min(1e6, number_at(object, "threads", 1)));
    file.processes = static_cast<int>(std::min(1e6, number_at(object, "processes", 1)));
    const json& rows = object.at("rows");
    for (std::size_t i = 0; i < rows.size(); ++i) try {
        file.rows.push_back(row_of(rows[i], file.copy_bandwidth > 0));
      } catch (const Error& error) {
        throw InvalidFile(fmt::format("rows[{}]: {}", i, error.what()));
      }
  }
  file.json = std::move(object);
  return file;
}

// Results are megabytes at most; a larger file is no result.
constexpr std::size_t most_json_bytes = std::size_t{64} << 20;

json parse_json(const std::string& path) {
  const std::vector<unsigned char> bytes = read_file(path, most_json_bytes);
  try {
    return json::parse(text_of(bytes));
  } catch (const json::exception& error) {
    throw InvalidFile(fmt::format("no JSON: {}", printable(error.what())));
  }
}

bool is_of_gpu(const DeviceResults& device) {
  return std::any_of(device.files.begin(), device.files.end(), [](const ResultsFile& file) {
    return text_at(file.json, "isa").starts_with("sm_") || file.copy_bandwidth > 0;
  });
}

void name_devices(const std::string& folder, Results& results) {
  json names = json::object();
  const std::string path = folder + "/machines.json";
  if (file_there(path)) try {
      names = parse_json(path);
    } catch (const Error& error) {
      results.skipped.emplace_back("machines.json", error.what());
    }
  for (DeviceResults& device : results.devices) {
    const json* const named = member(names, device.folder.c_str());
    std::string machine = device.folder;
    for (const ResultsFile& file : device.files)
      if (device.folder == ".") machine = text_at(file.json, "machine", machine);
    device.title = named ? text_at(*named, "title", machine) : machine;
    device.short_title = named ? text_at(*named, "short", device.title) : device.title;
    device.gpu = is_of_gpu(device);
  }
}

DeviceResults& device_in(Results& results, const std::string& folder) {
  for (DeviceResults& device : results.devices)
    if (device.folder == folder) return device;
  results.devices.emplace_back().folder = folder;
  return results.devices.back();
}

// The paths of all files that end in .json, below the folder, three levels at most, in order.
std::vector<std::filesystem::path> json_files(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  if (error)
    throw FileError(
        fmt::format("--results {}: {}. Give a folder with the JSON that convoy bench writes, as "
                    "bench/results of the source tree.",
                    printable_path(folder), error.message()));
  for (const auto end = fs::end(at); at != end; at.increment(error)) {
    if (error) break;
    if (at.depth() >= 2) at.disable_recursion_pending();
    if (at->path().extension() == ".json") paths.push_back(at->path().lexically_relative(folder));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

double BenchRow::intensity() const {
  return bytes > 0 ? gflops * ours.median_us * 1e3 / bytes : 0;
}

std::vector<double> ResultsFile::ratios() const {
  std::vector<double> all;
  for (const BenchRow& row : rows)
    if (row.ratio) all.push_back(*row.ratio);
  return all;
}

const ResultsFile* DeviceResults::find(std::string_view name) const {
  for (const ResultsFile& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

double geometric_mean(const std::vector<double>& values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return values.empty() ? 0 : std::exp(logs / static_cast<double>(values.size()));
}

Results read_results(const std::string& folder) {
  Results results;
  // Its name; what lies above it is nobody's business.
  const std::filesystem::path place =
      std::filesystem::path(folder).lexically_normal().has_filename()
          ? std::filesystem::path(folder).lexically_normal()
          : std::filesystem::path(folder).lexically_normal().parent_path();
  results.from = (place.parent_path().filename() / place.filename()).string();
  for (const std::filesystem::path& path : json_files(folder)) {
    if (path == "machines.json") continue;
    const std::string device = path.has_parent_path() ? path.begin()->string() : ".";
    std::string name = path.lexically_relative(device == "." ? "" : device).string();
    name.resize(name.size() - 5);
    try {
      ResultsFile file = file_of(name, parse_json((folder / path).string()));
      device_in(results, device).files.push_back(std::move(file));
    } catch (const Error& error) {
      results.skipped.emplace_back(path.string(), error.what());
    }
  }
  if (results.devices.empty()) {
    std::string why;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, results.skipped.size()); ++i)
      why += fmt::format(" {}: {}.", printable_path(results.skipped[i].first),
                         results.skipped[i].second);
    throw InvalidFile(
        fmt::format("--results {}: found no file that can be used, and {} that can't.{} Expected "
                    "files of convoy bench --json.",
                    printable_path(folder), results.skipped.size(), why));
  }
  name_devices(folder, results);
  // GPUs first, then who has most to show.
  const auto rows = [](const DeviceResults& device) {
    std::size_t count = 0;
    for (const ResultsFile& file : device.files) count += file.rows.size();
    return count;
  };
  std::stable_sort(results.devices.begin(), results.devices.end(),
                   [&](const DeviceResults& a, const DeviceResults& b) {
                     return a.gpu != b.gpu ? a.gpu : rows(a) > rows(b);
                   });
  return results;
}

Results results_of(const json& record, bool gpu) {
  Results results;
  results.from = "this run";
  DeviceResults device;
  device.folder = "run";
  device.title = device.short_title = text_at(record, "machine", "this machine");
  device.gpu = gpu;
  device.files.push_back(file_of("this run", record));
  results.devices.push_back(std::move(device));
  return results;
}

}  // namespace convoy::report
