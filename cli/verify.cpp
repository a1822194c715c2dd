// convoy verify: parity of every kernel with the oracle.
#include "verify/verify.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

using verify::Report;

struct VerifyArguments {
  std::string device = "cpu";
  StageList stages;
  StageChanges changes;
  Index random = -1;
  std::uint64_t seed = 1;
  std::string kernel, tile;
  bool non_finite = false;
  bool json = false;
};

void print_coverage(const Report& report) {
  struct Row {
    Index cells = 0, fewest = 0, checks = 0;
  };
  std::map<std::pair<std::string, std::string>, Row> rows;
  for (const auto& [cell, count] : report.coverage) {
    Row& row = rows[{cell.kernel, cell.tile}];
    row.fewest = row.cells == 0 ? count : std::min(row.fewest, count);
    ++row.cells;
    row.checks += count;
  }
  fmt::print(
      "coverage: every epilogue (activation x pool) with every tail case that a kernel has\n"
      "  {:<16} {:<16} {:>8} {:>16} {:>8}\n",
      "kernel", "tile", "cells", "fewest of a cell", "counts");
  for (const auto& [key, row] : rows)
    fmt::print("  {:<16} {:<16} {:>8} {:>16} {:>8}\n", key.first, key.second, row.cells, row.fewest,
               row.checks);
}

void print_text(const Report& report) {
  for (const verify::Failure& failure : report.failures)
    fmt::print("FAILED {}{}: {}\nrepro: {}\n", to_text(failure.chain),
               failure.kernel.empty() ? "" : " by " + failure.kernel + " " + failure.tile,
               failure.what, failure.repro);
  print_coverage(report);
  for (const verify::Cell& gap : report.gaps())
    fmt::print("NOT COVERED {} {}, {}, {}: {} of {}\n", gap.kernel, gap.tile, gap.epilogue,
               gap.tail, report.coverage.at(gap), report.least);
  for (const std::string& line : report.large) fmt::print("large: {}\n", line);
  for (const std::string& gap : report.field_gaps()) fmt::print("NOT DRAWN {}\n", gap);
  if (!report.fields.empty())
    fmt::print(
        "fields: {} pairs of {} fields of a stage were drawn together, each {} times or more\n",
        report.fields.size(), verify::fields().size(), report.least);
  const verify::Tally& tally = report.tally;
  fmt::print(
      "{} stage{}, {} chain{}, {} checks (one stage or chain by one kernel and tile), {} runs, {} "
      "outputs "
      "compared, {:.1f} s\n",
      report.stages, report.stages == 1 ? "" : "s", report.chains, report.chains == 1 ? "" : "s",
      report.checks, tally.runs, tally.outputs, report.seconds);
  if (tally.worst > 0)
    fmt::print("largest error: {:.2f} x that of plain fp32 (2 allowed), {}\n", tally.worst,
               tally.worst_at);
  if (tally.refused > 0)
    fmt::print("{} runs on views with gaps or minimum alignment were refused, with a reason\n",
               tally.refused);
  fmt::print("spikes: {}, of which {} differ with the membrane at the threshold\n",
             tally.spikes.spikes, tally.spikes.excused);
  fmt::print("{}\n",
             report.passed()
                 ? "passed"
                 : fmt::format("{} failures, {} gaps in the coverage", report.failures.size(),
                               report.gaps().size() + report.field_gaps().size()));
}

void print_json(const Report& report, const VerifyArguments& arguments) {
  nlohmann::ordered_json json;
  json["device"] = arguments.device;
  json["seed"] = arguments.seed;
  json["passed"] = report.passed();
  json["stages"] = report.stages;
  json["chains"] = report.chains;
  json["checks"] = report.checks;
  json["runs"] = report.tally.runs;
  json["outputs_compared"] = report.tally.outputs;
  json["runs_refused"] = report.tally.refused;
  json["seconds"] = report.seconds;
  json["largest_error_over_plain_fp32"] = report.tally.worst;
  json["largest_error_at"] = report.tally.worst_at;
  json["spikes"] = report.tally.spikes.spikes;
  json["spikes_excused"] = report.tally.spikes.excused;
  json["failures"] = nlohmann::json::array();
  for (const verify::Failure& failure : report.failures)
    json["failures"].push_back({{"stage", to_text(failure.chain)},
                                {"kernel", failure.kernel},
                                {"tile", failure.tile},
                                {"what", failure.what},
                                {"repro", failure.repro}});
  if (!report.large.empty()) json["large"] = report.large;
  json["coverage_least"] = report.least;
  json["field_pairs"] = report.fields.size();
  json["field_gaps"] = report.field_gaps();
  json["coverage"] = nlohmann::json::array();
  for (const auto& [cell, count] : report.coverage)
    json["coverage"].push_back({{"kernel", cell.kernel},
                                {"tile", cell.tile},
                                {"epilogue", cell.epilogue},
                                {"tail", cell.tail},
                                {"count", count}});
  fmt::print("{}\n", json_text(json, 1));
}

int run_verify(const VerifyArguments& arguments) {
  verify::VerifyOptions options;
  options.device = parse_device(arguments.device);
  options.seed = arguments.seed;
  options.kernel = arguments.kernel;
  options.tile = arguments.tile;
  options.non_finite = arguments.non_finite;
  options.stages = arguments.stages.read_chains(options.device.kind == DeviceKind::cuda);
  for (OwnedChain& chain : options.stages) chain = arguments.changes.apply(chain);
  options.random = arguments.random;
  if (arguments.random < 0) options.random = options.stages.empty() ? 200 : 0;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal)
    options.progress = [](Index done, Index all, Index failures) {
      print_error("\r{} of {} stages and chains, {} failures ", done, all, failures);
    };
  const Report report = verify::verify(options);
  if (terminal) print_error("\r\033[K");
  if (arguments.json)
    print_json(report, arguments);
  else
    print_text(report);
  return report.passed() ? 0 : 1;
}

}  // namespace

void add_verify(Command& app, int& exit_code) {
  auto arguments = std::make_shared<VerifyArguments>();
  Command* command = app.add_subcommand(
      "verify",
      "Compare the results of every kernel with the oracle, a slow reference implementation");
  add_device(*command, arguments->device);
  arguments->stages.add_to(*command);
  command
      ->add_option(
          "--random", arguments->random,
          "Number of random stages, and more until the coverage table is full; by default 200 if "
          "no stage is given, else 0")
      ->type_name("N")
      ->check(at_least(0));
  command->add_option("--seed", arguments->seed, "Seed of the random stages and of all data")
      ->type_name("N")
      ->capture_default_str()
      ->check(at_least(0));
  arguments->changes.add_to(*command);
  command->add_option("--kernel", arguments->kernel, "Check only this kernel")
      ->type_name("NAME")
      ->check(not_empty());
  command->add_option("--tile", arguments->tile, "Check only this tile")
      ->type_name("NAME")
      ->check(not_empty());
  command->add_flag("--non-finite", arguments->non_finite,
                    "Also put NaN, infinities and 1e37 into the input (144 runs per kernel)");
  add_json(*command, arguments->json);
  command->footer(
      "Example: convoy verify --random 2000 --seed 7\n"
      "         convoy verify --stage n4h32c64k128r3pad1+bias+relu+max2 --kernel winograd4\n"
      "         convoy verify --stage 'constants > spikes t3 > n2h6c8k9r3+if(1)+t3'\n"
      "Exit code 0: passed; 1: a kernel failed, or the coverage has a gap; 2: usage or input.");
  command->callback([arguments, &exit_code] { exit_code = run_verify(*arguments); });
}

}  // namespace convoy::cli
