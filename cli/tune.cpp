// convoy tune: measures the tiles of stages and remembers the fastest.
#include "convoy/tune.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bench/record.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "options.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/select.hpp"
#include "plan/tune_chain.hpp"

namespace convoy::cli {
namespace {

struct TuneArguments {
  StageList stages;
  std::string device = "cpu";
  int threads = 0;
  double seconds = 0.3;
  bool json = false, strict = false, dry_run = false, all_kernels = false;
};

// Where it was measured.
nlohmann::ordered_json record(const PlanOptions& options) {
  return bench::record_of(machine_for(options));
}

nlohmann::ordered_json json_of(const ChainTuneResult& result) {
  auto rows = nlohmann::ordered_json::array();
  for (const TuneRow& row : result.rows) {
    rows.push_back({{"kernel", row.kernel},
                    {"tile", row.tile},
                    {"predicted_seconds", row.predicted},
                    {"median_seconds", row.median},
                    {"minimum_seconds", row.minimum},
                    {"runs", row.runs},
                    {"chosen", row.chosen}});
    if (!row.refused.empty()) rows.back()["refused"] = row.refused;
  }
  return {{"stage", to_text(result.chain)},
          {"arithmetic", result.arithmetic},
          {"rows", std::move(rows)}};
}

void print_table(const ChainTuneResult& result) {
  fmt::print("{}\n  arithmetic: {}\n", to_text(result.chain), result.arithmetic);
  fmt::print("    {:<16} {:<24} {:>14} {:>14} {:>14} {:>7}\n", "kernel", "tile", "predicted, us",
             "median, us", "fastest, us", "runs");
  for (const TuneRow& row : result.rows)
    fmt::print("  {} {:<16} {:<24} {:>14.1f} {:>14.1f} {:>14.1f} {:>7}\n", row.chosen ? ">" : " ",
               row.kernel, row.tile, row.predicted * 1e6, row.median * 1e6, row.minimum * 1e6,
               row.runs);
  for (const TuneRow& row : result.rows)
    if (!row.refused.empty())
      fmt::print("    {} {} is refused and not stored: {}.\n", row.kernel, row.tile, row.refused);
}

ChainTuneResult measure(const OwnedChain& chain, const PlanOptions& options,
                        const TuneArguments& arguments) {
  const bool save = !arguments.dry_run;
  if (!is_one_stage(chain)) {
    if (arguments.all_kernels)
      throw Error(
          "--all-kernels: found a chain, expected single stages. Leave the option or the chain "
          "out.");
    return tune_chain(chain, options, arguments.seconds, save);
  }
  const Stage& stage = chain.stages.front();
  TuneResult one = arguments.all_kernels
                       ? measure_tiles(stage, options, arguments.seconds, Arithmetics::all)
                       : tune(stage, options, arguments.seconds, save);
  return {one.stage, one.arithmetic, std::move(one.rows), one.saved_to};
}

void run_tune(const TuneArguments& arguments) {
  PlanOptions options;
  options.device = parse_device(arguments.device);
  options.threads = arguments.threads;
  std::vector<OwnedChain> chains =
      arguments.stages.read_some_chains("tune", options.device.kind == DeviceKind::cuda);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  auto report = nlohmann::ordered_json::array();
  std::string saved_to;
  for (std::size_t i = 0; i < chains.size(); ++i) {
    for (Stage& stage : chains[i].stages) stage.strict = stage.strict || arguments.strict;
    if (terminal) print_error("\r\033[K{} of {}: {}", i + 1, chains.size(), to_text(chains[i]));
    // Saved one by one: what was measured before an interrupt is kept.
    const ChainTuneResult result = measure(chains[i], options, arguments);
    if (terminal) print_error("\r\033[K");
    saved_to = result.saved_to;
    if (arguments.json)
      report.push_back(json_of(result));
    else
      print_table(result);
  }
  if (arguments.json) {
    nlohmann::ordered_json all = record(options);
    all["stages"] = std::move(report);
    if (!saved_to.empty()) all["saved_to"] = saved_to;
    fmt::print("{}\n", json_text(all, 2));
  } else if (!saved_to.empty()) {
    fmt::print("Saved to {}.\n", printable_path(saved_to));
  }
}

}  // namespace

void add_tune(Command& app, int&) {
  auto arguments = std::make_shared<TuneArguments>();
  Command* command = app.add_subcommand(
      "tune",
      "Measure the kernels and tiles for a stage and store the fastest; results never change");
  arguments->stages.add_to(*command);
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command->add_option("--seconds", arguments->seconds, "Seconds of measurement per tile")
      ->type_name("S")
      ->capture_default_str()
      ->check(between(0.001, 600.0));
  add_strict(*command, arguments->strict);
  command->add_flag("--dry-run", arguments->dry_run, "Measure and print, but store nothing");
  command->add_flag("--all-kernels", arguments->all_kernels,
                    "Measure the kernels of every arithmetic, to fit cost models; stores nothing");
  add_json(*command, arguments->json);
  command->footer(
      "Example: convoy tune --shapes shapes/targets-cpu.txt\n"
      "         convoy tune --device cuda --stage 'f16:n32h56c64k128r3pad1+bias+relu+max2 > "
      "f16:n32h28c128k256r1+bias+relu'");
  command->callback([arguments] { run_tune(*arguments); });
}

}  // namespace convoy::cli
