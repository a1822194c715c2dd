// convoy explain: why a stage runs as it does.
#include "plan/explain.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "commands.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "cuda/known_gpus.hpp"
#include "explain_map.hpp"
#include "explain_trace.hpp"
#include "options.hpp"
#include "plan/kernel_table.hpp"
#include "plan/segments.hpp"
#include "plan/select.hpp"

namespace convoy::cli {
namespace {

struct ExplainArguments {
  std::string stage, device = "cpu", kernel, tile;
  std::vector<std::string> then;
  TraceArguments trace;
  int threads = 0;
  double seconds = 0.4;
  bool json = false, no_measure = false, all = false, strict = false, no_tuning = false;
  MapArguments inside;
};

std::vector<std::string> texts_of(std::span<const Stage> stages) {
  std::vector<std::string> texts;
  texts.reserve(stages.size());
  for (const Stage& stage : stages) texts.push_back(to_text(stage));
  return texts;
}

// Whether one kernel runs all the stages, and why.
void explain_chain(const Chain& chain, const PlanOptions& options, const Machine& machine,
                   const ExplainArguments& arguments) {
  const std::vector<Segment> segments = cut(chain, machine, options);
  const bool one = segments.size() == 1 && segments.front().kernel != nullptr;
  std::string why = segments.front().why;
  if (why.empty())
    why =
        fmt::format("by itself: no kernel on {} runs these stages as one", to_text(machine.device));
  const auto kernels = kernel_table();
  const bool possible = std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
    return is_for_chains(*kernel) && fits(*kernel, chain, machine);
  });
  std::optional<SegmentTimes> times;
  if (possible && !arguments.no_measure)
    times = measure_segments(chain, options, arguments.seconds);
  if (arguments.json) {
    nlohmann::ordered_json json{{"stages", texts_of(chain.stages)},
                                {"one_kernel", one},
                                {"kernel", one ? std::string(segments.front().kernel->name()) : ""},
                                {"why", why}};
    if (times) {
      json["one_kernel_seconds"] = times->one_kernel;
      json["by_themselves_seconds"] = times->by_themselves;
    }
    fmt::print("{}\n", json_text(json, 2));
    return;
  }
  for (const Stage& stage : chain.stages) fmt::print("{}\n", to_text(stage));
  fmt::print("{}\n", why);
  if (times)
    fmt::print("measured: in one kernel {:.1f} us, by themselves {:.1f} us\n",
               times->one_kernel * 1e6, times->by_themselves * 1e6);
}

void run_explain(const ExplainArguments& arguments, int& exit_code) {
  if (arguments.inside.wanted()) {
    if (!arguments.then.empty() || arguments.stage.find('>') != std::string::npos)
      throw Error(
          "explain: --map, --smem and --pipe: found a chain, expected a single stage. Ask for each "
          "stage separately.");
    if (arguments.all || arguments.trace.asked_for())
      throw Error(
          "explain: found both --all or --trace, which run kernels, and --map, --smem or --pipe, "
          "which "
          "run nothing; expected one kind. Leave one of them out.");
    run_explain_map(arguments.inside,
                    {arguments.stage, arguments.device, arguments.kernel, arguments.tile,
                     arguments.threads, arguments.strict, arguments.json});
    return;
  }
  if (cuda::known_gpu(arguments.device))
    throw Error(fmt::format(
        "device {}: found the name of a GPU, expected cpu, cuda or cuda:<number>. Names "
        "are for --map, --smem and --pipe, which run nothing: add one of these.",
        arguments.device));
  PlanOptions options;
  options.device = parse_device(arguments.device);
  OwnedChain chain = parse_chain(arguments.stage, options.device.kind == DeviceKind::cuda);
  for (const std::string& text : arguments.then) chain.stages.push_back(parse_stage(text));
  for (Stage& stage : chain.stages) stage.strict = stage.strict || arguments.strict;
  options.threads = arguments.threads;
  options.kernel = arguments.kernel;
  options.tile = arguments.tile;
  options.use_tuning = !arguments.no_tuning;
  if (arguments.all && arguments.no_measure)
    throw Error(
        "explain: found --all, which measures every kernel, and --no-measure, which measures none; "
        "expected one of them. Leave one out.");
  if (!is_one_stage(chain)) {
    if (arguments.all || !arguments.kernel.empty() || !arguments.tile.empty())
      throw Error(
          "explain: --kernel, --tile and --all: found a chain, expected a single stage. Leave "
          "these "
          "options out.");
    if (arguments.trace.asked_for())
      throw Error(
          "explain: --trace: found a chain, expected a single stage. Trace each stage separately.");
    explain_chain(chain, options, machine_for(options), arguments);
    return;
  }
  if (arguments.trace.asked_for()) {
    if (arguments.all)
      throw Error(
          "explain: found --all, which measures every kernel, and --trace, which runs one; "
          "expected "
          "one of them. Leave one out.");
    if (!explain_trace(arguments.trace, chain.stages.front(), options,
                       arguments.no_measure ? 0 : arguments.seconds, arguments.json))
      exit_code = 1;
    return;
  }
  const Explanation explanation = explain(
      chain.stages.front(), options, {!arguments.no_measure, arguments.all, arguments.seconds});
  if (arguments.json)
    fmt::print("{}\n", to_json(explanation));
  else
    fmt::print("{}", to_text(explanation));
}

}  // namespace

void add_explain(Command& app, int& exit_code) {
  auto arguments = std::make_shared<ExplainArguments>();
  Command* command = app.add_subcommand(
      "explain",
      "Tell why a stage runs on its kernel: sizes, kernels, tile, time and memory traffic");
  command
      ->add_option("stage", arguments->stage,
                   "A stage as text (docs/use/stages.md), or a chain: STAGE > STAGE")
      ->type_name("STAGE")
      ->required();
  command
      ->add_option(
          "--then", arguments->then,
          "The next stage of a chain: tell whether one kernel runs both stages, and why; may be "
          "repeated")
      ->type_name("STAGE")
      ->check(not_empty());
  add_device(*command, arguments->device,
             "; with --map, --smem or --pipe also a GPU by its name, which need not be present: " +
                 cuda::known_gpu_names());
  add_threads(*command, arguments->threads);
  command
      ->add_option("--kernel", arguments->kernel, "Use this kernel instead of the planner's choice")
      ->type_name("NAME")
      ->check(not_empty());
  command->add_option("--tile", arguments->tile, "Use this tile instead of the planner's choice")
      ->type_name("NAME")
      ->check(not_empty());
  add_strict(*command, arguments->strict);
  add_no_tuning(*command, arguments->no_tuning);
  command->add_flag("--no-measure", arguments->no_measure, "Predict times, but run nothing");
  command->add_flag("--all", arguments->all,
                    "Measure every kernel that can run the stage, not only the chosen one");
  command->add_option("--seconds", arguments->seconds, "Seconds of measurement per kernel")
      ->type_name("S")
      ->capture_default_str()
      ->check(between(0.001, 60.0));
  arguments->inside.add_to(*command);
  add_trace(*command, arguments->trace);
  add_json(*command, arguments->json);
  command->footer(
      "Example: convoy explain n4h32c64k128r3pad1+bias+relu+max2\n"
      "         convoy explain f16:n32h56c64k128r3pad1 --device h200 --map --gemm 100,7\n"
      "Exit code 0: success; 1: a traced run (--trace) gave other bits; 2: usage or input.");
  command->callback([arguments, &exit_code] { run_explain(*arguments, exit_code); });
}

}  // namespace convoy::cli
