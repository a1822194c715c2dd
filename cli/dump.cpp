// convoy dump: what every operator of a network gives for an image, as files.
#include "inspect/dump.hpp"

#include <fmt/core.h>

#include <memory>

#include "commands.hpp"
#include "core/printable.hpp"
#include "images.hpp"
#include "network/load.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

struct DumpArguments {
  std::string model, folder, device = "cpu";
  ImageOptions images;
  Index image = 0;
  int threads = 0;
  bool reference = false;
};

void run_dump(const DumpArguments& arguments) {
  inspect::DumpJob job;
  job.model = arguments.model;
  job.folder = arguments.folder;
  job.image = arguments.image;
  job.options.device = parse_device(arguments.device);
  job.options.threads = arguments.threads;
  network::Model model = network::read_model(arguments.model);
  const io::Images images = arguments.images.read(arguments.model, model.text);
  expect_images(images, arguments.image, 1, "--img-idx");
  inspect::make_folder(arguments.folder);  // before long work
  const ConstTensorView image = view_of(images, arguments.image, 1);
  const auto dump = arguments.reference ? inspect::dump_reference : inspect::dump_network;
  const Index operators = dump(job, std::move(model), image);
  fmt::print("{} {} of image {} in {}\n", operators, operators == 1 ? "operator" : "operators",
             arguments.image, printable_path(arguments.folder));
}

}  // namespace

void add_dump(Command& app, int&) {
  auto arguments = std::make_shared<DumpArguments>();
  Command* command =
      app.add_subcommand("dump", "Write the output of every operator of a network for one image");
  add_model(*command, arguments->model);
  command
      ->add_option("folder", arguments->folder,
                   "Folder for the dumps; created if it does not exist")
      ->type_name("FOLDER")
      ->required()
      ->check(not_empty());
  arguments->images.add_to(*command);
  command->add_option("--img-idx", arguments->image, "Index of the image in the file, from 0")
      ->type_name("I")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag(
      "--reference", arguments->reference,
      "Compute by the oracle instead, and write dbg_<operator>_ref.bin and the membranes of "
      "neurons");
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command->footer(
      "Example: convoy dump models/fashion-scnn dumps --img-idx 7\n"
      "         convoy dump models/fashion-scnn dumps --img-idx 7 --reference\n"
      "         convoy compare dumps");
  command->callback([arguments] { run_dump(*arguments); });
}

}  // namespace convoy::cli
