// convoy ladder: a convolution on Tensor Cores, optimised step by step, each step timed.
#include "bench/ladder.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include "bench/record.hpp"
#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "options.hpp"
#include "plan/select.hpp"

namespace convoy::cli {
namespace {

struct LadderArguments {
  std::vector<std::string> stages;
  std::string device = "cuda";
  double seconds = 0.02;
  int rounds = 15;
  bool json = false;
};

void run_ladder(const LadderArguments& arguments) {
  bench::Options options;
  options.plan.device = parse_device(arguments.device);
  if (options.plan.device.kind != DeviceKind::cuda)
    throw Error(
        fmt::format("--device: found \"{}\", expected cuda or cuda:<number>, because the ladder's "
                    "kernels run on GPUs",
                    arguments.device));
  options.seconds_per_turn = arguments.seconds;
  options.most_rounds = arguments.rounds;
  options.least_rounds = std::min(options.least_rounds, arguments.rounds);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) options.progress = [](const std::string& text) { print_error("\r\033[K{}", text); };
  std::vector<Stage> stages;
  stages.reserve(arguments.stages.size());
  for (const std::string& text : arguments.stages) stages.push_back(parse_stage(text));
  if (stages.empty()) stages = bench::ladder_stages();

  const Machine machine = machine_for(options.plan);
  nlohmann::ordered_json all = bench::record_of(machine);
  all["method"] = bench::method_of(machine.device.kind);
  all["stages"] = nlohmann::ordered_json::array();
  std::string text = fmt::format("{}, {} multiprocessors, driver {}\n", machine.name,
                                 machine.multiprocessors, machine.driver);
  for (const Stage& stage : stages) {
    const bench::Ladder ladder = bench::climb(stage, options);
    all["stages"].push_back(bench::to_json(ladder));
    text += "\n" + bench::to_table(ladder);
  }
  if (terminal) print_error("\r\033[K");
  if (arguments.json)
    fmt::print("{}\n", json_text(all, 1));
  else
    fmt::print("{}", text);
}

}  // namespace

void add_ladder(Command& app, int&) {
  auto arguments = std::make_shared<LadderArguments>();
  Command* command = app.add_subcommand(
      "ladder", "Time a convolution on a GPU's Tensor Cores, optimised step by step");
  command
      ->add_option(
          "--stage", arguments->stages,
          "A stage in f16 and NHWC, without groups and pool; may be repeated; by default four "
          "stages")
      ->type_name("STAGE")
      ->check(not_empty());
  add_device(*command, arguments->device);
  add_rounds(*command, arguments->seconds, arguments->rounds, "Seconds per round for each kernel");
  add_json(*command, arguments->json);
  command->footer("Example: convoy ladder --stage f16:n32h56c64k128r3pad1+bias+relu");
  command->callback([arguments] { run_ladder(*arguments); });
}

}  // namespace convoy::cli
