// convoy check: chosen operators of a network by Convoy, the rest by a reference.
#include "inspect/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "comparison_text.hpp"
#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "images.hpp"
#include "inspect/dump_files.hpp"
#include "inspect/torch_reference.hpp"
#include "network/flow.hpp"
#include "network/load.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

using inspect::CheckedOperator;
using inspect::CheckReport;

struct CheckArguments {
  std::string model, device = "cpu", save, python, script;
  ImageOptions images;
  std::vector<std::string> checked, timed;
  Index image = 0, batch = 1, steps = 0;
  ComparisonOptions comparison;
  int threads = 0;
  bool torch = false, json = false;
};

std::string milliseconds(const CheckedOperator& one, double seconds) {
  return one.timed ? fmt::format("{:.4f}", seconds * 1e3) : "-";
}

void print_table(const CheckReport& report) {
  std::size_t name = 8, kernel = 6;
  bool timed = false;
  for (const CheckedOperator& one : report.operators) {
    name = std::max(name, printable(one.op->name).size());
    kernel = std::max(kernel, one.kernel.size());
    timed = timed || one.timed;
  }
  fmt::print("{:<{}}  {:<10}  {:<{}}  {:>9}  {:>9}  {:>8}  {:>12}", "operator", name, "kind",
             "kernel", kernel, "max error", "relative", "wrong", "at threshold");
  if (timed) fmt::print("  {:>10}  {:>12}", "Convoy ms", "reference ms");
  fmt::print("\n");
  for (const CheckedOperator& one : report.operators) {
    fmt::print("{:<{}}  {:<10}  {:<{}}", printable(one.op->name), name, to_text(one.op->kind),
               one.kernel, kernel);
    const inspect::Comparison& r = one.result;
    if (one.checked)
      fmt::print("  {:>9.2g}  {:>9.2g}  {:>8}  {:>12}", r.max_error, r.relative_error, r.off,
                 r.excused);
    else
      fmt::print("  {:>9}  {:>9}  {:>8}  {:>12}", "-", "-", "-", "-");
    if (timed)
      fmt::print("  {:>10}  {:>12}", milliseconds(one, one.seconds),
                 milliseconds(one, one.reference_seconds));
    fmt::print("  {}\n", !one.checked ? "timed" : r.off == 0 ? "passed" : "FAILED");
  }
}

void print_predictions(const CheckReport& report) {
  const inspect::Predictions& labels = report.predictions;
  if (!labels.any) {
    fmt::print("predictions: none, because the output of the last layer is not a vector\n");
    return;
  }
  const Index same = report.images - static_cast<Index>(labels.differing.size());
  fmt::print("predictions: {} of {} agree with the reference's\n", same, report.images);
  for (const Index image : labels.differing) {
    const auto i = static_cast<std::size_t>(image);
    const bool excused =
        std::find(labels.excused.begin(), labels.excused.end(), image) != labels.excused.end();
    fmt::print("  image {} of the batch: {}, expected {}{}\n", image, labels.ours[i],
               labels.reference[i], excused ? "; rounding decides it" : "");
  }
}

void print_text(const CheckReport& report, const std::string& reference) {
  fmt::print("reference: {}\n\n", reference);
  if (!report.operators.empty()) print_table(report);
  for (const CheckedOperator& one : report.operators)
    if (one.result.off > 0) fmt::print("\n{}", off_text(one.op->name, one.result, one.shape));
  fmt::print("\n");
  print_predictions(report);
  fmt::print("{}\n", report.passed() ? "passed" : "FAILED");
}

void print_json(const CheckReport& report, const CheckArguments& arguments,
                const std::string& reference) {
  nlohmann::ordered_json operators = nlohmann::ordered_json::array();
  for (const CheckedOperator& one : report.operators) {
    nlohmann::ordered_json json = {{"name", one.op->name},
                                   {"kind", to_text(one.op->kind)},
                                   {"kernel", one.kernel},
                                   {"shape", one.shape},
                                   {"checked", one.checked}};
    if (one.checked) json["passed"] = one.result.off == 0;
    if (one.checked) json.update(json_of(one.result, one.shape));
    if (one.timed)
      json.update({{"seconds", one.seconds}, {"reference_seconds", one.reference_seconds}});
    operators.push_back(std::move(json));
  }
  const inspect::Predictions& labels = report.predictions;
  const nlohmann::ordered_json all = {{"model", arguments.model},
                                      {"device", arguments.device},
                                      {"reference", reference},
                                      {"first_image", arguments.image},
                                      {"images", report.images},
                                      {"passed", report.passed()},
                                      {"operators", operators},
                                      {"labels", labels.ours},
                                      {"reference_labels", labels.reference},
                                      {"labels_differ", labels.differing},
                                      {"labels_excused", labels.excused}};
  fmt::print("{}\n", json_text(all, 1));
}

std::unique_ptr<inspect::Reference> start_torch(const CheckArguments& arguments) {
  if (!arguments.torch) return nullptr;
  return std::make_unique<inspect::TorchReference>(
      in_source_tree(arguments.python, "CONVOY_TORCH_PYTHON", ".venv/bin/python"),
      in_source_tree(arguments.script, "CONVOY_TORCH_SCRIPT", "python/check_torch.py"),
      arguments.threads > 0 ? arguments.threads : default_threads());
}

int run_check(const CheckArguments& arguments) {
  inspect::CheckOptions options;
  if (!arguments.checked.empty()) options.checked = arguments.checked;
  options.timed = arguments.timed;
  options.plan.device = parse_device(arguments.device);
  options.plan.threads = arguments.threads;
  options.tolerance = arguments.comparison.tolerance;
  options.most_worst = static_cast<std::size_t>(arguments.comparison.topk);
  const inspect::Operators operators =
      inspect::operators_of(network::read_model(arguments.model, arguments.steps));
  inspect::expect_known(operators, options.checked);
  inspect::expect_known(operators, options.timed);
  const io::Images images = arguments.images.read(arguments.model, operators.text);
  expect_images(images, arguments.image, arguments.batch, "--img-idx");
  if (!arguments.save.empty()) inspect::make_folder(arguments.save);  // before long work
  // After all that can be wrong is known: to start PyTorch takes seconds.
  const std::unique_ptr<inspect::Reference> torch = start_torch(arguments);
  options.reference = torch.get();
  const std::string reference = torch ? torch->name() : "the oracle";
  const CheckReport report =
      inspect::check(operators, view_of(images, arguments.image, arguments.batch), options);
  if (!arguments.save.empty())
    inspect::save(arguments.save, arguments.model, arguments.image, operators, report);
  if (arguments.json)
    print_json(report, arguments, reference);
  else
    print_text(report, reference);
  return report.passed() ? 0 : 1;
}

}  // namespace

void add_check(Command& app, int& exit_code) {
  auto arguments = std::make_shared<CheckArguments>();
  Command* command = app.add_subcommand(
      "check", "Compare operators of a network, run by Convoy, with the reference");
  add_model(*command, arguments->model);
  const std::string names = "operators (conv1 if1 pool1), whole layers (fuse1), all or none";
  command
      ->add_option("--op", arguments->checked,
                   "Run by Convoy and compare: " + names + "; by default all")
      ->type_name("NAME");
  command
      ->add_option("--time-op", arguments->timed,
                   "Also time, by Convoy and by the reference: " + names)
      ->type_name("NAME");
  arguments->images.add_to(*command);
  command->add_option("--img-idx", arguments->image, "Index of the first image in the file, from 0")
      ->type_name("I")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--batch-size", arguments->batch, "Number of images, from --img-idx on")
      ->type_name("B")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--timesteps", arguments->steps,
                   "Number of time steps; by default that of the network")
      ->type_name("T")
      ->check(between(Index{1}, network::most_steps));
  command
      ->add_option(
          "--save", arguments->save,
          "Write the outputs of Convoy and of the reference to this folder, for convoy compare")
      ->type_name("FOLDER")
      ->check(not_empty());
  command->add_flag(
      "--torch", arguments->torch,
      "Use PyTorch (with SpikingJelly's neurons) as the reference instead of the oracle");
  command
      ->add_option("--torch-python", arguments->python,
                   "Python interpreter for --torch; by default CONVOY_TORCH_PYTHON, or else "
                   ".venv/bin/python of the source tree")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--torch-script", arguments->script,
                   "Script for --torch; by default CONVOY_TORCH_SCRIPT, or else "
                   "python/check_torch.py in the source tree")
      ->type_name("FILE")
      ->check(not_empty());
  arguments->comparison.add_to(*command);
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  add_json(*command, arguments->json);
  command->footer(
      "Example: convoy check models/fashion-scnn --op all --time-op all --batch-size 16\n"
      "         convoy check models/fashion-scnn --op conv2 if2 pool2 --save dumps\n"
      "         convoy check models/fashion-scnn --op fuse1 fuse2 --device cuda\n"
      "Exit code 0: passed; 1: an operator or a prediction is wrong; 2: usage or input.");
  command->callback([arguments, &exit_code] { exit_code = run_check(*arguments); });
}

}  // namespace convoy::cli
