#include "peer_process.hpp"

#include <fmt/core.h>

#include <utility>

#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "inspect/stage_json.hpp"

namespace convoy::bench {
namespace {

nlohmann::json to_json(const Stage& stage, DeviceKind device) {
  const bool gpu = device == DeviceKind::cuda;
  const bool type = stage.dtype == DType::f32 ||
                    (gpu && (stage.dtype == DType::f16 || stage.dtype == DType::bf16));
  if (!type || stage.out || stage.layout != Layout::nhwc || stage.norm || stage.keep.any() ||
      (stage.act.is_neuron() && !gpu))
    throw Error(fmt::format(
        "--peers: found {1}, expected {0} or keep.",
        gpu ? "f16, bf16 and f32 NHWC stages without norm" : "f32 NHWC stages without norm, neuron",
        to_text(stage)));
  nlohmann::json json = inspect::json_of(stage);
  json["dtype"] = to_text(stage.dtype);
  json["n"] = stage.n;
  json["t"] = stage.t;
  json["hold"] = stage.hold;
  return json;
}

// glibc's default of giving large blocks back to the system halves PyTorch's speed at large
// batches; the peers are to be at their best.
inspect::WorkerCommand command_of(const std::string& python, const std::string& script,
                                  DeviceKind device, int threads, bool stopped) {
  const bool gpu = device == DeviceKind::cuda;
  inspect::WorkerCommand command;
  command.python = python;
  command.script = script;
  command.environment = {fmt::format("CONVOY_PEER_THREADS={}", threads),
                         "MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184"};
  if (!gpu) command.environment.emplace_back("CUDA_VISIBLE_DEVICES=");
  command.stopped = stopped;
  command.name = "peers'";
  command.options = "peers";
  command.question = "{\"op\":\"time\"}";
  command.without_python = gpu ? "Give an interpreter with torch and jax as --peers-python."
                               : "Run scripts/peers to make it, or give an interpreter with torch, "
                                 "onnxruntime, onnx and "
                                 "openvino as --peers-python.";
  command.without_script =
      fmt::format("--peers: the source tree was not found. Name its bench/{} with --peers-script.",
                  gpu ? "peers_gpu.py" : "peers.py");
  return command;
}

}  // namespace

PeerProcess::PeerProcess(const std::string& python, const std::string& script, DeviceKind device,
                         int threads, bool stopped)
    : device_(device), worker_(command_of(python, script, device, threads, stopped)) {}

nlohmann::json PeerProcess::prepare(const Stage& stage, bool apart) {
  nlohmann::json answer =
      worker_.ask({{"op", "prepare"}, {"stage", to_json(stage, device_)}, {"apart", apart}});
  const auto names = [&](const char* key) {
    const auto list = answer.find(key);
    if (list == answer.end() || !list->is_array()) worker_.garbled(json_text(answer));
    for (const nlohmann::json& name : *list)  // they go into tables and CSV
      if (!name.is_string() || !is_printable(name.get_ref<const std::string&>()) ||
          name.get_ref<const std::string&>().find_first_of(",\"") != std::string::npos)
        worker_.garbled(json_text(answer));
  };
  names("peers");
  for (const char* key : {"partial", "apart"})
    if (answer.contains(key)) names(key);
  const auto method = answer.find("method");
  if (!answer.contains("left_out") || !answer.contains("versions") ||
      (method != answer.end() && !method->is_string()))
    worker_.garbled(json_text(answer));
  return answer;
}

std::vector<double> PeerProcess::time(const std::string& peer, double seconds, bool apart) {
  const nlohmann::json answer =
      worker_.ask({{"op", "time"}, {"peer", peer}, {"seconds", seconds}, {"apart", apart}});
  const auto list = answer.find("samples");
  if (list == answer.end() || !list->is_array() || list->empty())
    worker_.garbled(json_text(answer));
  std::vector<double> samples;
  for (const nlohmann::json& sample : *list) {
    if (!sample.is_number() || !(sample.get<double>() > 0)) worker_.garbled(json_text(answer));
    samples.push_back(sample.get<double>());
  }
  return samples;
}

}  // namespace convoy::bench
