// convoy bench: how fast stages run, beside other libraries.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/harness.hpp"
#include "bench/peer_process.hpp"
#include "bench/runs.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "options.hpp"
#include "plan/select.hpp"
#include "result_file.hpp"

namespace convoy::cli {
namespace {

struct Arguments {
  StageList stages;
  std::string device = "cpu", kernel, json, csv, python, script;
  int threads = 0;
  StageChanges changes;
  bool both = false, both_types = false, peers = false, unfused = false, no_tuning = false;
  double seconds = 0.03;
  int rounds = 25;
};

// Beside the program's source tree; scripts/peers makes the interpreter.
std::string or_default(const std::string& given, const char* variable, const char* relative) {
  if (!given.empty()) return given;
  if (const char* value = std::getenv(variable)) return value;
  return std::string(CONVOY_SOURCE_DIR) + relative;
}

int run_bench(const Arguments& arguments) {
  std::vector<Stage> stages = arguments.stages.read_some("bench");
  for (Stage& stage : stages) stage = arguments.changes.apply(stage);
  const ResultFile json("--json", arguments.json), table("--csv", arguments.csv);
  ResultFile::expect_different(json, table);
  bench::Options options;
  options.plan.device = parse_device(arguments.device);
  options.plan.threads = arguments.threads;
  options.plan.kernel = arguments.kernel;
  options.plan.use_tuning = !arguments.no_tuning;
  options.unfused = arguments.unfused;
  options.both_modes = arguments.both;
  options.both_types = arguments.both_types;
  options.seconds_per_turn = arguments.seconds;
  options.most_rounds = arguments.rounds;
  options.least_rounds = std::min(options.least_rounds, arguments.rounds);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) options.progress = [](const std::string& text) { print_error("\r\033[K{}", text); };
  const Machine machine = machine_for(options.plan);
  const bool gpu = machine.device.kind == DeviceKind::cuda;
  if (gpu) options.bandwidth = bench::measure_gpu_copy_bandwidth(machine.device);
  std::unique_ptr<bench::PeerProcess> peers;
  const auto start_peers = [&] {
    if (!arguments.peers) return;
    peers = std::make_unique<bench::PeerProcess>(
        or_default(arguments.python, "CONVOY_PEERS_PYTHON", "/.venv/bin/python"),
        or_default(arguments.script, "CONVOY_PEERS_SCRIPT",
                   gpu ? "/bench/peers_gpu.py" : "/bench/peers.py"),
        machine.device.kind, machine.threads);
    options.peers = peers.get();
  };
  start_peers();

  std::vector<bench::Row> rows;
  std::string csv = bench::csv_header();
  nlohmann::json report{{"convoy", version()},
                        {"machine", machine.name},
                        {"isa", machine.isa},
                        {"threads", machine.threads},
                        {"mode", arguments.both             ? "both"
                                 : arguments.changes.strict ? "strict"
                                                            : "default"},
                        {"rows", nlohmann::json::array()}};
  if (gpu) {
    report["driver"] = machine.driver;
    report["copy_bandwidth"] = options.bandwidth;
  }
  int exit_code = 0;
  for (const Stage& stage : stages) {
    try {
      for (bench::Row& row : bench::run(stage, options)) {
        csv += bench::to_csv(row);
        report["rows"].push_back(bench::to_json(row));
        rows.push_back(std::move(row));
      }
    } catch (const Error& error) {
      if (stages.size() == 1) throw;
      // The rest of a list is measured all the same, with peers that nothing happened to.
      print_error("{}convoy: {}\n", terminal ? "\r\033[K" : "", error.what());
      report["failed"].push_back({{"stage", to_text(stage)}, {"why", error.what()}});
      exit_code = 1;
      start_peers();
    }
    // Stage by stage: an interrupt keeps what was measured before it.
    if (json.asked_for() && !json.on_standard_output()) json.write(json_text(report, 1) + "\n");
  }
  if (terminal) print_error("\r\033[K");
  if (table.asked_for()) table.write(csv);
  if (json.on_standard_output()) json.write(json_text(report, 1) + "\n");
  if (json.alone() || table.alone()) return exit_code;
  if (gpu)
    fmt::print("{}, {} multiprocessors, driver {}, copies at {:.2f} TB/s\n", machine.name,
               machine.multiprocessors, machine.driver, 1e-12 * options.bandwidth);
  else
    fmt::print("{}, {}, {} thread{}\n", machine.name, machine.isa, machine.threads,
               machine.threads == 1 ? "" : "s");
  fmt::print("{}", bench::to_table(rows));
  return exit_code;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure stages, beside other libraries if asked");
  arguments->stages.add_to(*command);
  arguments->changes.add_to(*command);
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command->add_option("--kernel", arguments->kernel, "Force a kernel by name")
      ->type_name("NAME")
      ->check(not_empty());
  add_strict(*command, arguments->changes.strict);
  command
      ->add_flag("--both-modes", arguments->both,
                 "Each stage in default and in strict mode, in the same rounds")
      ->excludes("--strict");
  CLI::Option* both_types = command->add_flag(
      "--both-types", arguments->both_types,
      "Each f16 stage in bf16 too, in the same rounds: equally warm, so that times compare");
  add_no_tuning(*command, arguments->no_tuning);
  command->add_flag(
      "--unfused", arguments->unfused,
      "Time the same stage unfused: convolution + bias, activation and pool, one after the other");
  command
      ->add_flag("--peers", arguments->peers,
                 "Time PyTorch, ONNX Runtime and OpenVINO in turns with Convoy; on a GPU "
                 "cuDNN, torch.compile and XLA")
      ->excludes(both_types);
  command
      ->add_option("--peers-python", arguments->python,
                   "Their interpreter; without it .venv of the source tree")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--peers-script", arguments->script,
                   "Their worker; without it bench/peers.py (on a GPU bench/peers_gpu.py) of "
                   "the source tree")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_option("--seconds", arguments->seconds, "Of each contestant in each round")
      ->type_name("S")
      ->capture_default_str()
      ->check(between(0.001, 10.0));
  command->add_option("--rounds", arguments->rounds, "At most; it stops sooner when all is quiet")
      ->type_name("N")
      ->capture_default_str()
      ->check(between(Index{1}, 1000));
  command
      ->add_option("--json", arguments->json,
                   "Write the result as JSON to a file; - for standard output")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--csv", arguments->csv,
                   "Write the result as CSV to a file; - for standard output")
      ->type_name("FILE")
      ->check(not_empty());
  command->footer(
      "Example: convoy bench --peers --shapes shapes/targets-cpu.txt --json result.json\n"
      "         convoy bench --device cuda --shapes shapes/resnet50.txt --dtype f16");
  command->callback([arguments, &exit_code] { exit_code = run_bench(*arguments); });
}

}  // namespace convoy::cli
