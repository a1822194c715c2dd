// convoy report: results and stages as one HTML page.
#include <fmt/core.h>
#include <fmt/format.h>

#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "options.hpp"
#include "report/page.hpp"
#include "report/results.hpp"
#include "result_file.hpp"

namespace convoy::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> stages;
  std::string shapes, results, out;
};

// Shown where no stage is asked for: a target stage of a CPU and one of a GPU.
constexpr const char* stages_by_default[] = {"n4h32w32c64k128r3pad1+bias+relu+max2",
                                             "f16:n256h14w14c256k512r3pad1+bias+relu+max2"};

std::vector<Stage> stages_of(const ReportArguments& arguments) {
  StageList list{arguments.stages, arguments.shapes};
  if (list.texts.empty() && list.file.empty())
    list.texts.assign(std::begin(stages_by_default), std::end(stages_by_default));
  std::vector<Stage> stages;
  for (const OwnedChain& chain : list.read_chains(true)) {
    if (!is_one_stage(chain))
      throw Error(
          fmt::format("report: found the chain \"{}\", expected single stages. Give its "
                      "stages separately.",
                      printable(to_text(chain))));
    stages.push_back(chain.stages.front());
  }
  return stages;
}

void run_report(const ReportArguments& arguments) {
  const ResultFile out("-o", arguments.out);
  report::PageRequest request;
  request.stages = stages_of(arguments);
  request.results =
      report::read_results(in_source_tree(arguments.results, "CONVOY_RESULTS", "bench/results"));
  for (const auto& [path, why] : request.results.skipped)
    print_error("convoy: report: {} is left out: {}\n", printable_path(path), printable_lines(why));
  out.write(report::page(request));
}

}  // namespace

void add_report(Command& app, int&) {
  auto arguments = std::make_shared<ReportArguments>();
  Command* command = app.add_subcommand(
      "report", "Write measured results and stages as one HTML page, with charts");
  command
      ->add_option("stages", arguments->stages,
                   "Stages to show in detail, as text (docs/use/stages.md); by default two stages")
      ->type_name("STAGE");
  command->add_option("--shapes", arguments->shapes, "A file with the stages to show, one per line")
      ->type_name("FILE")
      ->check(not_empty())
      ->excludes("stages");
  command
      ->add_option(
          "--results", arguments->results,
          "Folder with files of convoy bench --json, or with one such folder per device; by "
          "default CONVOY_RESULTS, or else bench/results of the source tree")
      ->type_name("FOLDER")
      ->check(not_empty());
  command->add_option("-o,--out", arguments->out, "The file to write; - for standard output")
      ->type_name("FILE.html")
      ->required()
      ->check(not_empty());
  command->footer(
      "Example: convoy report -o report.html\n"
      "         convoy report f16:n32h56c64k128r3pad1+bias+relu+max2 --results bench/results "
      "-o report.html");
  command->callback([arguments] { run_report(*arguments); });
}

}  // namespace convoy::cli
