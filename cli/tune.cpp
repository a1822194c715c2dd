// convoy tune: measures the tiles of stages, or of a network's, and remembers the fastest.
#include "convoy/tune.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bench/record.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "network/tune_network.hpp"
#include "options.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/select.hpp"
#include "plan/tune_chain.hpp"

namespace convoy::cli {
namespace {

struct TuneArguments {
  StageList stages;
  std::string model, device = "cpu";
  std::vector<std::string> batches;
  int threads = 0;
  double seconds = 0.3;
  bool json = false, strict = false, dry_run = false, all_kernels = false;
};

// Where it was measured.
nlohmann::ordered_json record(const PlanOptions& options) {
  return bench::record_of(machine_for(options));
}

/// What is printed of one stage or chain.
struct TuneTable {
  std::string stage, arithmetic;
  std::vector<TuneRow> rows;
  std::vector<std::string> layers = {};  // of a network
};

nlohmann::ordered_json json_of(const TuneTable& table) {
  auto rows = nlohmann::ordered_json::array();
  for (const TuneRow& row : table.rows) {
    rows.push_back({{"kernel", row.kernel},
                    {"tile", row.tile},
                    {"predicted_seconds", row.predicted},
                    {"median_seconds", row.median},
                    {"minimum_seconds", row.minimum},
                    {"runs", row.runs},
                    {"chosen", row.chosen}});
    if (!row.refused.empty()) rows.back()["refused"] = row.refused;
  }
  nlohmann::ordered_json json{{"stage", table.stage}, {"arithmetic", table.arithmetic}};
  if (!table.layers.empty()) json["layers"] = table.layers;
  json["rows"] = std::move(rows);
  return json;
}

void print_table(const TuneTable& table) {
  fmt::print("{}\n", table.stage);
  if (!table.layers.empty()) {
    std::vector<std::string> names;
    names.reserve(table.layers.size());
    for (const std::string& name : table.layers) names.push_back(printable(name));
    fmt::print("  {}: {}\n", names.size() > 1 ? "layers" : "layer", fmt::join(names, ", "));
  }
  fmt::print("  arithmetic: {}\n", table.arithmetic);
  fmt::print("    {:<16} {:<24} {:>14} {:>14} {:>14} {:>7}\n", "kernel", "tile", "predicted, us",
             "median, us", "fastest, us", "runs");
  for (const TuneRow& row : table.rows)
    fmt::print("  {} {:<16} {:<24} {:>14.1f} {:>14.1f} {:>14.1f} {:>7}\n", row.chosen ? ">" : " ",
               row.kernel, row.tile, row.predicted * 1e6, row.median * 1e6, row.minimum * 1e6,
               row.runs);
  for (const TuneRow& row : table.rows)
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

void show_progress(std::size_t number, std::size_t count, const std::string& text) {
  if (isatty(STDERR_FILENO) != 0) print_error("\r\033[K{} of {}: {}", number, count, text);
}
void end_progress() {
  if (isatty(STDERR_FILENO) != 0) print_error("\r\033[K");
}

/// Prints what was measured, a stage at a time or, as JSON, at the end.
class TuneReport {
 public:
  explicit TuneReport(bool json) : json_(json) {}

  void add(const TuneTable& table) {
    if (json_)
      stages_.push_back(json_of(table));
    else
      print_table(table);
  }
  void end(const PlanOptions& options, const std::string& saved_to) {
    if (json_) {
      nlohmann::ordered_json all = record(options);
      all["stages"] = std::move(stages_);
      if (!saved_to.empty()) all["saved_to"] = saved_to;
      fmt::print("{}\n", json_text(all, 2));
    } else if (!saved_to.empty()) {
      fmt::print("Saved to {}.\n", printable_path(saved_to));
    }
  }

 private:
  bool json_;
  nlohmann::ordered_json stages_ = nlohmann::ordered_json::array();
};

void tune_model(const TuneArguments& arguments, const PlanOptions& options) {
  if (!arguments.stages.texts.empty() || !arguments.stages.file.empty())
    throw Error(
        "tune: found a model folder, and --stage or --shapes; expected one of them. Tune the "
        "folder first, then the stages.");
  if (arguments.strict || arguments.all_kernels)
    throw Error(
        "tune: found a model folder, and --strict or --all-kernels, which are for stages. The "
        "network's stages are measured as they are: leave these options out.");
  std::vector<Index> batches;
  batches.reserve(arguments.batches.size());
  for (const std::string& text : arguments.batches) batches.push_back(std::stoll(text));
  NetworkOptions of_network;
  of_network.device = options.device;
  of_network.threads = options.threads;
  const Network network(arguments.model, of_network);
  NetworkTuneResult result = network::tune_network(program_of(network), batches, arguments.seconds,
                                                   !arguments.dry_run, show_progress);
  end_progress();
  TuneReport report(arguments.json);
  for (TunedStage& one : result.stages)
    report.add({one.stage, one.arithmetic, std::move(one.rows), std::move(one.layers)});
  report.end(options, result.saved_to);
}

void run_tune(const TuneArguments& arguments) {
  PlanOptions options;
  options.device = parse_device(arguments.device);
  options.threads = arguments.threads;
  if (!arguments.model.empty()) return tune_model(arguments, options);
  if (!arguments.batches.empty())
    throw Error("tune: found --batch without a model folder; a stage has its own n. Leave it out.");
  if (arguments.stages.texts.empty() && arguments.stages.file.empty())
    throw Error(
        "tune: give a model folder, or --stage STAGE or --shapes FILE, for example --stage "
        "n4h32c64k128r3pad1+bias+relu+max2");
  std::vector<OwnedChain> chains =
      arguments.stages.read_some_chains("tune", options.device.kind == DeviceKind::cuda);
  TuneReport report(arguments.json);
  std::string saved_to;
  for (std::size_t i = 0; i < chains.size(); ++i) {
    for (Stage& stage : chains[i].stages) stage.strict = stage.strict || arguments.strict;
    show_progress(i + 1, chains.size(), to_text(chains[i]));
    // Saved one by one: what was measured before an interrupt is kept.
    ChainTuneResult result = measure(chains[i], options, arguments);
    end_progress();
    saved_to = result.saved_to;
    report.add({to_text(result.chain), result.arithmetic, std::move(result.rows)});
  }
  report.end(options, saved_to);
}

}  // namespace

void add_tune(Command& app, int&) {
  auto arguments = std::make_shared<TuneArguments>();
  Command* command = app.add_subcommand(
      "tune",
      "Measure the kernels and tiles for stages, or for every stage of a network, and store the "
      "fastest; results never change");
  command
      ->add_option("model", arguments->model,
                   "Model folder whose stages are tuned, in place of --stage and --shapes")
      ->type_name("FOLDER")
      ->check(not_empty());
  arguments->stages.add_to(*command);
  command
      ->add_option("--batch", arguments->batches,
                   "Number of images that pass through the network's layers at once; may be "
                   "repeated; by default the network's own choice")
      ->type_name("N")
      ->check(between(1, network::most_images));
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
      "         convoy tune models/fashion-scnn --batch 1 --batch 256\n"
      "         convoy tune --device cuda --stage 'f16:n32h56c64k128r3pad1+bias+relu+max2 > "
      "f16:n32h28c128k256r1+bias+relu'");
  command->callback([arguments] { run_tune(*arguments); });
}

}  // namespace convoy::cli
