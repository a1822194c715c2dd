// convoy bench: how fast stages run, beside other libraries.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/chains.hpp"
#include "bench/harness.hpp"
#include "bench/peer_process.hpp"
#include "bench/record.hpp"
#include "bench/runs.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "options.hpp"
#include "plan/select.hpp"
#include "report/page.hpp"
#include "result_file.hpp"

namespace convoy::cli {
namespace {

struct BenchArguments {
  StageList stages;
  std::string device = "cpu", kernel, json, csv, html, python, script;
  int threads = 0;
  StageChanges changes;
  bool both = false, both_types = false, apart = false, unfused = false, no_tuning = false;
  bool peers = false, peers_keep_running = false;
  double seconds = 0.03;
  int rounds = 25;
};

bench::Options options_of(const BenchArguments& arguments, bool terminal) {
  bench::Options options;
  options.plan.device = parse_device(arguments.device);
  options.plan.threads = arguments.threads;
  options.plan.kernel = arguments.kernel;
  options.plan.use_tuning = !arguments.no_tuning;
  options.unfused = arguments.unfused;
  options.apart = arguments.apart;
  options.both_modes = arguments.both;
  options.both_types = arguments.both_types;
  options.seconds_per_turn = arguments.seconds;
  options.most_rounds = arguments.rounds;
  options.least_rounds = std::min(options.least_rounds, arguments.rounds);
  if (terminal) options.progress = [](const std::string& text) { print_error("\r\033[K{}", text); };
  if (options.plan.device.kind == DeviceKind::cuda)
    options.bandwidth = bench::measure_gpu_copy_bandwidth(machine_for(options.plan).device);
  else if (options.apart)
    throw Error(
        "--apart: found a CPU, expected a GPU: on a CPU runs never overlap. Leave it out, or give "
        "--device cuda.");
  return options;
}

std::unique_ptr<bench::PeerProcess> start_peers(const BenchArguments& arguments,
                                                const Machine& machine) {
  const bool gpu = machine.device.kind == DeviceKind::cuda;
  return std::make_unique<bench::PeerProcess>(
      in_source_tree(arguments.python, "CONVOY_PEERS_PYTHON", ".venv/bin/python"),
      in_source_tree(arguments.script, "CONVOY_PEERS_SCRIPT",
                     gpu ? "bench/peers_gpu.py" : "bench/peers.py"),
      machine.device.kind, machine.threads, !gpu && !arguments.peers_keep_running);
}

// What was measured, and what could not be.
class BenchReport {
 public:
  BenchReport(const BenchArguments& arguments, const bench::Options& options,
              const Machine& machine);

  void add(bench::Row row);
  void add_failure(const Chain& chain, const Error& error);
  void write() const;  // the JSON
  /// Stage by stage: an interrupt keeps what was measured before it.
  void write_so_far() const {
    if (json_.asked_for() && !json_.on_standard_output()) write();
  }
  void print(const Machine& machine, const bench::Options& options) const;
  /// The page of --html.
  void write_page(const Machine& machine) const;
  int exit_code() const { return all_.contains("failed") ? 1 : 0; }

 private:
  ResultFile json_, table_, html_;
  std::vector<bench::Row> rows_;
  std::string csv_ = bench::csv_header();
  nlohmann::json all_;
};

BenchReport::BenchReport(const BenchArguments& arguments, const bench::Options& options,
                         const Machine& machine)
    : json_("--json", arguments.json),
      table_("--csv", arguments.csv),
      html_("--html", arguments.html) {
  ResultFile::expect_different(json_, table_);
  ResultFile::expect_different(json_, html_);
  ResultFile::expect_different(table_, html_);
  all_ = bench::record_of(machine);
  all_["mode"] = arguments.both ? "both" : arguments.changes.strict ? "strict" : "default";
  all_["method"]["convoy"] = bench::method_of(machine.device.kind);
  all_["rows"] = nlohmann::json::array();
  if (machine.device.kind == DeviceKind::cuda) all_["copy_bandwidth"] = options.bandwidth;
}

void BenchReport::add(bench::Row row) {
  csv_ += bench::to_csv(row);
  all_["rows"].push_back(bench::to_json(row));
  if (!row.peers_method.empty()) all_["method"]["peers"] = row.peers_method;
  rows_.push_back(std::move(row));
}

void BenchReport::add_failure(const Chain& chain, const Error& error) {
  all_["failed"].push_back({{"stage", to_text(chain)}, {"why", error.what()}});
}

void BenchReport::write() const {
  json_.write(json_text(all_, 1) + "\n");
}

void BenchReport::print(const Machine& machine, const bench::Options& options) const {
  if (table_.asked_for()) table_.write(csv_);
  if (json_.on_standard_output()) write();
  write_page(machine);
  if (json_.alone() || table_.alone() || html_.alone()) return;
  if (machine.device.kind == DeviceKind::cuda)
    fmt::print("{}, {} multiprocessors, driver {}, copies at {:.2f} TB/s\n", machine.name,
               machine.multiprocessors, machine.driver, 1e-12 * options.bandwidth);
  else
    fmt::print("{}, {}, {} thread{}\n", machine.name, machine.isa, machine.threads,
               machine.threads == 1 ? "" : "s");
  fmt::print("{}", bench::to_table(rows_));
}

void BenchReport::write_page(const Machine& machine) const {
  if (!html_.asked_for()) return;
  if (rows_.empty())
    throw Error(
        "--html: no stage could be measured, expected at least one to show. The messages above "
        "give "
        "the reasons.");
  report::PageRequest request;
  request.title = "convoy bench";
  request.results = report::results_of(all_, machine.device.kind == DeviceKind::cuda);
  // Of a long list the tables tell; the first stages are shown one by one.
  constexpr std::size_t shown = 8;
  for (const bench::Row& row : rows_)
    if (const OwnedChain chain = parse_chain(row.stage, request.results.devices.front().gpu);
        is_one_stage(chain) && request.stages.size() < shown)
      request.stages.push_back(chain.stages.front());
  html_.write(report::page(request));
}

// What is measured beside a chain is its stages.
void expect_no_other_contestants(const BenchArguments& arguments, const Chain& chain) {
  const std::pair<const char*, bool> flags[] = {{"--peers", arguments.peers},
                                                {"--both-modes", arguments.both},
                                                {"--both-types", arguments.both_types},
                                                {"--unfused", arguments.unfused},
                                                {"--apart", arguments.apart}};
  for (const auto& [flag, given] : flags)
    if (given)
      throw Error(fmt::format(
          "{}: found the chain \"{}\", expected single stages: a chain is only compared "
          "with its own stages. Leave the option or the chain out.",
          flag, to_text(chain)));
}

int run_bench(const BenchArguments& arguments) {
  const bool gpu = parse_device(arguments.device).kind == DeviceKind::cuda;
  std::vector<OwnedChain> chains = arguments.stages.read_some_chains("bench", gpu);
  for (OwnedChain& chain : chains) {
    chain = arguments.changes.apply(chain);
    if (!is_one_stage(chain)) expect_no_other_contestants(arguments, chain);
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const char* clear = terminal ? "\r\033[K" : "";
  bench::Options options = options_of(arguments, terminal);
  const Machine machine = machine_for(options.plan);
  BenchReport report(arguments, options, machine);
  std::unique_ptr<bench::PeerProcess> peers;
  for (const OwnedChain& chain : chains) {
    try {
      if (!is_one_stage(chain)) {
        report.add(bench::run(chain, options));
        report.write_so_far();
        continue;
      }
      const Stage& stage = chain.stages.front();
      if (arguments.peers && !peers) peers = start_peers(arguments, machine);
      options.peers = peers.get();
      for (bench::Row& row : bench::run(stage, options)) report.add(std::move(row));
    } catch (const Error& error) {
      if (chains.size() == 1) throw;
      // The rest of a list is measured all the same, with peers that nothing happened to.
      print_error("{}convoy: {}\n", clear, error.what());
      report.add_failure(chain, error);
      peers.reset();
    }
    report.write_so_far();
  }
  if (terminal) print_error("{}", clear);
  report.print(machine, options);
  return report.exit_code();
}

}  // namespace

void add_bench(Command& app, int& exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  Command* command = app.add_subcommand(
      "bench", "Measure how fast stages and chains run, and compare with other libraries if asked");
  arguments->stages.add_to(*command);
  arguments->changes.add_to(*command);
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command
      ->add_option("--kernel", arguments->kernel, "Run this kernel instead of the planner's choice")
      ->type_name("NAME")
      ->check(not_empty());
  add_strict(*command, arguments->changes.strict);
  command
      ->add_flag("--both-modes", arguments->both,
                 "Measure each stage in default and in strict mode, in the same rounds")
      ->excludes("--strict");
  Option* both_types = command->add_flag(
      "--both-types", arguments->both_types,
      "Measure each f16 stage in bf16 as well, in the same rounds, so that the times can be "
      "compared");
  command->add_flag("--apart", arguments->apart,
                    "GPU only: also time runs with a small separate kernel between them, so that "
                    "consecutive runs "
                    "cannot overlap");
  add_no_tuning(*command, arguments->no_tuning);
  command->add_flag(
      "--unfused", arguments->unfused,
      "Also time the stage unfused: convolution + bias, then the activation, then the pool");
  command
      ->add_flag(
          "--peers", arguments->peers,
          "Also time other libraries, in turns with Convoy: PyTorch, ONNX Runtime and OpenVINO "
          "on a CPU; cuDNN, torch.compile and XLA on a GPU")
      ->excludes(both_types);
  command
      ->add_option("--peers-python", arguments->python,
                   "Python interpreter for --peers; by default CONVOY_PEERS_PYTHON, or else "
                   ".venv/bin/python of the source tree")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--peers-script", arguments->script,
                   "Script for --peers; by default CONVOY_PEERS_SCRIPT, or else bench/peers.py (on "
                   "a GPU bench/peers_gpu.py) in the source tree")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_flag(
      "--peers-keep-running", arguments->peers_keep_running,
      "CPU only: do not stop the process of the other libraries while Convoy is timed");
  add_rounds(*command, arguments->seconds, arguments->rounds,
             "Seconds per round for each contestant");
  command
      ->add_option("--json", arguments->json,
                   "Write the result as JSON to this file; - for standard output")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--csv", arguments->csv,
                   "Write the result as CSV to this file; - for standard output")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--html", arguments->html,
                   "Write the result as an HTML page, like convoy report; - for standard output")
      ->type_name("FILE")
      ->check(not_empty());
  command->footer(
      "Example: convoy bench --peers --shapes shapes/targets-cpu.txt --json result.json\n"
      "         convoy bench --device cuda --shapes shapes/resnet50.txt --dtype f16\n"
      "         convoy bench --device cuda --stage 'f16:n32h56c64k128r3pad1+bias+relu+max2 > "
      "f16:n32h28c128k256r1+bias+relu'\n"
      "Exit code 0: success; 1: a stage of a list failed; 2: usage or input.");
  command->callback([arguments, &exit_code] { exit_code = run_bench(*arguments); });
}

}  // namespace convoy::cli
