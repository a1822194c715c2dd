#include "inspect/torch_reference.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "convoy/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "inspect/dump_files.hpp"
#include "inspect/stage_json.hpp"

namespace convoy::inspect {
namespace {

WorkerCommand command_of(const std::string& python, const std::string& script, int threads) {
  WorkerCommand command;
  command.python = python;
  command.script = script;
  command.environment = {fmt::format("OMP_NUM_THREADS={}", threads), "CUDA_VISIBLE_DEVICES="};
  command.name = "PyTorch";
  command.options = "torch";
  command.question = "{\"op\":\"hello\"}";
  command.without_python = "Give an interpreter that has torch and spikingjelly as --torch-python.";
  command.without_script =
      "--torch: the source tree was not found. Name its python/check_torch.py with --torch-script.";
  return command;
}

std::string make_own_folder() {
  std::string folder = (std::filesystem::temp_directory_path() / "convoy-check-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    throw Error(fmt::format("{}: {}", printable_path(folder), std::strerror(errno)));
  return folder;
}

void write_floats(const std::string& path, const void* values, std::size_t count) {
  write_file_atomically(path, {static_cast<const char*>(values), count * sizeof(float)});
}

}  // namespace

TorchReference::TorchReference(const std::string& python, const std::string& script, int threads)
    : worker_(command_of(python, script, threads)) {
  const nlohmann::json answer = ask({{"op", "hello"}});
  const auto name = answer.find("name");
  if (name == answer.end() || !name->is_string() ||
      !is_printable(name->get_ref<const std::string&>()))
    worker_.garbled(json_text(answer));
  name_ = *name;
  folder_ = make_own_folder();
}

TorchReference::~TorchReference() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

nlohmann::json TorchReference::ask(const nlohmann::json& request) {
  nlohmann::json answer = worker_.ask(request);
  if (const auto error = answer.find("error"); error != answer.end())
    throw Error(fmt::format("--torch: {}",
                            printable(error->is_string() ? error->get<std::string>() : "", 400)));
  return answer;
}

Tensor TorchReference::read(const char* file, const std::vector<Index>& shape) const {
  Tensor tensor(DType::f32, shape);
  const std::vector<float> values = read_values(path(file), tensor.elements());
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

Output TorchReference::run(const Operator& op, Index steps, Index n, const ConstTensorView& x) {
  const std::vector<Index> shape = output_shape(op, steps, n);
  const bool neuron = op.kind == OperatorKind::neuron;
  const Index values = n * op.stage.h * op.stage.w * op.stage.c;
  Index elements = 1;
  for (int axis = 0; axis < x.rank; ++axis) elements *= x.shape[axis];
  write_floats(path("x.bin"), x.data, static_cast<std::size_t>(elements));
  write_floats(path("w.bin"), op.w.data(), op.w.size());
  write_floats(path("bias.bin"), op.bias.data(), op.bias.size());
  const nlohmann::json answer = ask({{"op", "run"},
                                     {"kind", to_text(op.kind)},
                                     {"stage", json_of(op.stage)},
                                     {"n", n},
                                     {"x_steps", elements / values},
                                     {"y_shape", shape},
                                     {"folder", folder_}});
  const auto seconds = answer.find("seconds");
  if (seconds == answer.end() || !seconds->is_number() || !(seconds->get<double>() >= 0))
    worker_.garbled(json_text(answer));
  Output output;
  output.y = read("y.bin", shape);
  if (neuron) output.membrane = read("membrane.bin", shape);
  output.seconds = *seconds;
  return output;
}

}  // namespace convoy::inspect
