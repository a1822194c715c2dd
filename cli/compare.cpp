// convoy compare: a folder of dumps against the reference's.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "comparison_text.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "inspect/compare_folder.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

using inspect::ComparedOperator;
using inspect::Comparison;

struct CompareArguments {
  std::string folder;
  ComparisonOptions comparison;
  bool json = false;
};

const ComparedOperator* first_off(const std::vector<ComparedOperator>& all) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [](const ComparedOperator& one) { return one.result.off > 0; });
  return found == all.end() ? nullptr : &*found;
}

std::string shape_text(const std::vector<Index>& shape) {
  std::string text;
  for (const Index size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

void print_table(const std::vector<ComparedOperator>& all) {
  std::size_t name = 8, shape = 5;
  for (const ComparedOperator& one : all) {
    name = std::max(name, printable(one.op.name).size());
    shape = std::max(shape, shape_text(one.op.shape).size());
  }
  fmt::print("{:<{}}  {:<10}  {:<{}}  {:>9}  {:>9}  {:>9}  {:>8}  {:>12}\n", "operator", name,
             "kind", "shape", shape, "max error", "mean", "relative", "wrong", "at threshold");
  for (const ComparedOperator& one : all) {
    const Comparison& r = one.result;
    fmt::print("{:<{}}  {:<10}  {:<{}}  {:>9.2g}  {:>9.2g}  {:>9.2g}  {:>8}  {:>12}\n",
               printable(one.op.name), name, to_text(one.op.kind), shape_text(one.op.shape), shape,
               r.max_error, r.mean_error, r.relative_error, r.off,
               one.op.spikes_of.empty() ? "-" : std::to_string(r.excused));
  }
}

void print_off(const ComparedOperator& one) {
  fmt::print("\n{}", off_text(one.op.name, one.result, one.op.full_shape()));
  if (one.channels_first)
    fmt::print(
        "  The dump agrees if it is read as [T,C,H,W], PyTorch's order. Expected [T,H,W,C].\n");
}

void print_text(const std::vector<ComparedOperator>& all) {
  print_table(all);
  for (const ComparedOperator& one : all)
    if (one.result.off > 0) print_off(one);
  std::size_t excused = 0;
  for (const ComparedOperator& one : all) excused += one.result.excused;
  const ComparedOperator* const off = first_off(all);
  if (excused > 0)
    fmt::print("\nspikes that differ with the reference's membrane at the threshold: {}{}\n",
               excused,
               off ? ". Operators that read these spikes have another input than in the reference: "
                     "`convoy check` gives every operator the reference's input"
                   : "");
  if (off)
    fmt::print("\nFAILED: {} is the first wrong operator, at {}\n", printable(off->op.name),
               text_of(off->result.first, off->op.full_shape()));
  else
    fmt::print("\nall {} operators agree\n", all.size());
}

void print_json(const std::vector<ComparedOperator>& all, const CompareArguments& arguments) {
  nlohmann::ordered_json operators = nlohmann::ordered_json::array();
  for (const ComparedOperator& one : all) {
    nlohmann::ordered_json json = {
        {"name", one.op.name}, {"kind", to_text(one.op.kind)}, {"shape", one.op.shape}};
    json.update(json_of(one.result, one.op.full_shape()));
    json["agrees_channels_first"] = one.channels_first;
    operators.push_back(std::move(json));
  }
  const ComparedOperator* const off = first_off(all);
  const nlohmann::ordered_json report = {
      {"folder", arguments.folder},
      {"tol", arguments.comparison.tolerance.absolute},
      {"rtol", arguments.comparison.tolerance.relative},
      {"passed", off == nullptr},
      {"first_off", off ? nlohmann::ordered_json(off->op.name) : nlohmann::ordered_json(nullptr)},
      {"operators", operators}};
  fmt::print("{}\n", json_text(report, 1));
}

int run_compare(const CompareArguments& arguments) {
  const std::vector<ComparedOperator> all =
      inspect::compare_folder(arguments.folder, arguments.comparison.tolerance,
                              static_cast<std::size_t>(arguments.comparison.topk));
  if (arguments.json)
    print_json(all, arguments);
  else
    print_text(all);
  return first_off(all) ? 1 : 0;
}

}  // namespace

void add_compare(Command& app, int& exit_code) {
  auto arguments = std::make_shared<CompareArguments>();
  Command* command =
      app.add_subcommand("compare", "Compare the dumps of a network with those of the reference");
  command
      ->add_option("folder", arguments->folder,
                   "Folder with both dumps, as written by convoy dump or convoy check --save")
      ->type_name("FOLDER")
      ->required()
      ->check(not_empty());
  arguments->comparison.add_to(*command);
  add_json(*command, arguments->json);
  command->footer(
      "Example: convoy compare dumps --tol 1e-4 --topk 10\n"
      "Exit code 0: all operators agree; 1: an operator is wrong; 2: usage or input.");
  command->callback([arguments, &exit_code] { exit_code = run_compare(*arguments); });
}

}  // namespace convoy::cli
