// convoy explain: why a stage runs as it does.
#include "plan/explain.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "commands.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "options.hpp"
#include "plan/fusion.hpp"

namespace convoy::cli {
namespace {

struct Arguments {
  std::string stage, then, device = "cpu", kernel, tile;
  int threads = 0;
  double seconds = 0.4;
  bool json = false, no_measure = false, all = false, strict = false, no_tuning = false;
};

void explain_fusion(const Stage& first, const Stage& second, const Machine& machine,
                    const Arguments& arguments) {
  const Fusion fusion = judge_fusion(first, second, machine);
  std::optional<FusionTimes> times;
  if (fusion.possible && !arguments.no_measure)
    times = measure_fusion(first, second, machine, arguments.seconds);
  if (arguments.json) {
    nlohmann::ordered_json json{{"first", to_text(first)},
                                {"second", to_text(second)},
                                {"one_launch", fusion.fused},
                                {"why", fusion.why}};
    if (times) {
      json["one_launch_seconds"] = times->one_launch;
      json["two_launches_seconds"] = times->two_launches;
    }
    fmt::print("{}\n", json_text(json, 2));
    return;
  }
  fmt::print("{}\n{}\n{}\n", to_text(first), to_text(second), fusion.why);
  if (times)
    fmt::print("measured: one launch {:.1f} us, two launches {:.1f} us\n", times->one_launch * 1e6,
               times->two_launches * 1e6);
}

void run_explain(const Arguments& arguments) {
  Stage stage = parse_stage(arguments.stage);
  if (arguments.strict) stage.strict = true;
  PlanOptions options;
  options.device = parse_device(arguments.device);
  options.threads = arguments.threads;
  options.kernel = arguments.kernel;
  options.tile = arguments.tile;
  options.use_tuning = !arguments.no_tuning;
  if (arguments.all && arguments.no_measure)
    throw Error("explain: --all measures every kernel, --no-measure none. Leave one of them out.");
  if (!arguments.then.empty()) {
    explain_fusion(stage, parse_stage(arguments.then), machine_for(options), arguments);
    return;
  }
  const Explanation explanation =
      explain(stage, options, {!arguments.no_measure, arguments.all, arguments.seconds});
  if (arguments.json)
    fmt::print("{}\n", to_json(explanation));
  else
    fmt::print("{}", to_text(explanation));
}

}  // namespace

void add_explain(CLI::App& app, int&) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "explain", "Tell why a stage runs as it does: sizes, kernels, tile, time and memory traffic");
  command->add_option("stage", arguments->stage, "The stage, as text (docs/stage.md)")
      ->type_name("STAGE")
      ->required();
  command
      ->add_option("--then", arguments->then,
                   "Another stage: tell instead whether both run in one launch, and why")
      ->type_name("STAGE")
      ->check(not_empty());
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command->add_option("--kernel", arguments->kernel, "Force a kernel by name")
      ->type_name("NAME")
      ->check(not_empty());
  command->add_option("--tile", arguments->tile, "Force a tile by name")
      ->type_name("NAME")
      ->check(not_empty());
  add_strict(*command, arguments->strict);
  add_no_tuning(*command, arguments->no_tuning);
  command->add_flag("--no-measure", arguments->no_measure, "Predict only: run nothing");
  command->add_flag("--all", arguments->all,
                    "Measure each kernel that fits, not only the chosen one");
  command->add_option("--seconds", arguments->seconds, "To measure, for each kernel")
      ->type_name("S")
      ->capture_default_str()
      ->check(between(0.001, 60.0));
  add_json(*command, arguments->json);
  command->footer("Example: convoy explain n4h32c64k128r3pad1+bias+relu+max2");
  command->callback([arguments] { run_explain(*arguments); });
}

}  // namespace convoy::cli
