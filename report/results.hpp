// What benchmarks wrote: bench/results/<device>/*.json, read for a page that shows it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace convoy::report {

/// One way of computing a stage, as it was timed.
struct Contestant {
  std::string name;
  double median_us = 0;
  double spread = 0;     // interquartile range / median
  double ratio = 0;      // its time / ours, 0 where that was not told
  bool partial = false;  // does a part of the stage only
};

/// A stage as `convoy bench` timed it.
struct BenchRow {
  std::string stage, kernel, tile;
  int threads = 0;
  Contestant ours;
  std::vector<Contestant> peers;
  std::string best_peer;
  std::optional<double> ratio;             // the best peer's time / ours
  double least_ratio = 0, most_ratio = 0;  // over processes; the ratio where there was one
  double gflops = 0, peak_gflops = 0;
  double bytes = 0;      // x, weights and y once each; 0: not known
  double clock_ghz = 0;  // of a GPU
  double floor_us = 0;   // 0: not known
  bool quiet = true;
  std::vector<std::pair<std::string, std::string>> left_out;  // peer and why

  double intensity() const;  // operations a byte; 0: not known
  /// Time / the larger floor; 0 where the floor is not known.
  double times_floor() const { return floor_us > 0 ? ours.median_us / floor_us : 0; }
};

enum class FileKind { bench, ladder, tiles, two_builds, network, two_stages, other };

struct ResultsFile {
  std::string name;  // without folder and ending: "targets-cpu-default-2t"
  FileKind kind = FileKind::other;
  nlohmann::json json;  // all of it
  // Of bench files:
  std::vector<BenchRow> rows;
  std::string mode;  // "default", "strict", "both"
  int threads = 0, processes = 1;
  double copy_bandwidth = 0;  // bytes/s of a GPU; 0: not known

  std::vector<double> ratios() const;
};

struct DeviceResults {
  std::string folder, title, short_title;
  bool gpu = false;
  std::vector<ResultsFile> files;  // by name

  const ResultsFile* find(std::string_view name) const;
};

struct Results {
  std::vector<DeviceResults> devices;
  /// Files that could not be used: path and why.
  std::vector<std::pair<std::string, std::string>> skipped;
  std::string from;  // the folder
};

/// Every *.json in `folder` and in its folders, which are devices (machines.json names them). What
/// is not of the form that convoy writes is left out and told in `skipped`. Throws Error where the
/// folder can't be read, or nothing in it can be used.
Results read_results(const std::string& folder);

/// The record of one run of `convoy bench`, as its JSON has it. Throws Error where it is none.
Results results_of(const nlohmann::json& record, bool gpu);

double geometric_mean(const std::vector<double>& values);

}  // namespace convoy::report
