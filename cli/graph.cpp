// convoy graph: a network before and behind each pass, and the steps that run it.
#include <fmt/core.h>

#include <memory>

#include "commands.hpp"
#include "graph/passes.hpp"
#include "network/describe.hpp"
#include "network/load.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

struct GraphArguments {
  std::string model, device = "cpu";
  int threads = 0;
  Index batch = 0;
};

void print_graph(const char* title, const graph::Graph& graph) {
  fmt::print("{}\n{}\n", title, graph::to_text(graph));
}

void run_graph(const GraphArguments& arguments) {
  NetworkOptions options;
  options.device = parse_device(arguments.device);
  options.threads = arguments.threads;
  options.batch = arguments.batch;
  network::check_options(options);
  const network::Model model = network::read_model(arguments.model);
  print_graph("as it was read", model.graph);
  graph::Graph now = graph::fold_batchnorm(model.graph);
  print_graph("fold_batchnorm: batch-norms are in the weights", now);
  now = graph::order_columns(std::move(now));
  print_graph("order_columns: flattening moves nothing", now);
  const network::Program program = network::make_program(model.graph, options);
  print_graph("fuse: a convolution, its activation and its pool are one stage", program.graph);
  fmt::print("{}", network::describe(program));
}

}  // namespace

void add_graph(Command& app, int&) {
  auto arguments = std::make_shared<GraphArguments>();
  Command* command = app.add_subcommand(
      "graph", "Show a network's operators before and after each pass, and the steps that run it");
  add_model(*command, arguments->model);
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command
      ->add_option("--batch", arguments->batch,
                   "Number of images that pass through the layers at once; 0: Convoy chooses")
      ->type_name("N")
      ->capture_default_str()
      ->check(between(0, (Index{1} << 31) - 1));
  command->footer("Example: convoy graph models/fashion-cnn");
  command->callback([arguments] { run_graph(*arguments); });
}

}  // namespace convoy::cli
