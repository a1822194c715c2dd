#include "peer_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"

extern char** environ;

namespace convoy::bench {
namespace {

constexpr std::size_t longest_answer = 64 << 20;  // a turn of ten seconds has two million samples

nlohmann::json to_json(const Stage& stage, DeviceKind device) {
  const bool gpu = device == DeviceKind::cuda;
  const bool type =
      gpu ? stage.dtype == DType::f16 || stage.dtype == DType::bf16 : stage.dtype == DType::f32;
  if (!type || stage.out || stage.layout != Layout::nhwc || stage.norm || stage.act.is_neuron() ||
      stage.keep.any())
    throw Error(
        fmt::format("--peers: they time {} NHWC stages without norm, neuron or keep. Found {}.",
                    gpu ? "f16 and bf16" : "f32", to_text(stage)));
  using Kind = Activation::Kind;
  const auto pair = [](Extent e) { return nlohmann::json{e.h, e.w}; };
  const char* act = "";
  switch (stage.act.kind) {
    case Kind::relu:
      act = "relu";
      break;
    case Kind::relu6:
      act = "relu6";
      break;
    case Kind::clip:
      act = "clip";
      break;
    case Kind::leaky:
      act = "leaky";
      break;
    default:
      break;
  }
  nlohmann::json json{{"dtype", name(stage.dtype)},
                      {"n", stage.n},
                      {"h", stage.h},
                      {"w", stage.w},
                      {"c", stage.c},
                      {"k", stage.k},
                      {"r", stage.r},
                      {"s", stage.s},
                      {"groups", stage.groups},
                      {"bias", stage.bias},
                      {"stride", pair(stage.stride)},
                      {"dil", pair(stage.dil)},
                      {"pad", {stage.pad.top, stage.pad.left, stage.pad.bottom, stage.pad.right}},
                      {"act", act},
                      {"a", stage.act.a},
                      {"b", stage.act.b},
                      {"pool", nullptr}};
  if (const auto& pool = stage.pool)
    json["pool"] = {{"window", pair(pool->window)},
                    {"stride", pair(pool->stride)},
                    {"pad", pair(pool->pad)},
                    {"dil", pair(pool->dil)},
                    {"ceil", pool->ceil}};
  return json;
}

}  // namespace

PeerProcess::PeerProcess(const std::string& python, const std::string& script, DeviceKind device,
                         int threads)
    : script_(script), device_(device) {
  const bool gpu = device == DeviceKind::cuda;
  if (access(script.c_str(), R_OK) != 0)
    throw Error(fmt::format(
        "{}: not found. --peers needs the source tree; give its bench/{} with --peers-script.",
        printable_path(script), gpu ? "peers_gpu.py" : "peers.py"));
  if (python.find('/') != std::string::npos && access(python.c_str(), X_OK) != 0)
    throw Error(printable_path(python) +
                (gpu ? ": not found. Give an interpreter with torch and jax as --peers-python."
                     : ": not found. Run scripts/peers to make it, or give an interpreter with "
                       "torch, onnxruntime, onnx and openvino as --peers-python."));
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw Error(fmt::format("pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  // glibc's default of giving large blocks back to the system halves PyTorch's speed at large
  // batches; the peers are to be at their best.
  std::vector<std::string> extra = {fmt::format("CONVOY_PEER_THREADS={}", threads),
                                    "MALLOC_MMAP_THRESHOLD_=4294967296",
                                    "MALLOC_TRIM_THRESHOLD_=17179869184"};
  if (!gpu) extra.emplace_back("CUDA_VISIBLE_DEVICES=");
  std::vector<char*> environment;
  for (char** entry = environ; *entry; ++entry) environment.push_back(*entry);
  for (std::string& entry : extra) environment.push_back(entry.data());
  environment.push_back(nullptr);
  std::string python_copy = python, script_copy = script;
  char* arguments[] = {python_copy.data(), script_copy.data(), nullptr};
  const int failure =
      posix_spawnp(&child_, python.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_child_ = in[1];
  from_child_ = out[0];
  if (failure != 0) {
    child_ = -1;
    close(to_child_);
    close(from_child_);
    throw Error(fmt::format("{}: can't be started: {}. Run scripts/peers.", printable_path(python),
                            std::strerror(failure)));
  }
  signal(SIGPIPE, SIG_IGN);  // a worker that died shows as a failed write
}

PeerProcess::~PeerProcess() {
  if (child_ < 0) return;
  close(to_child_);
  close(from_child_);
  kill(child_, SIGTERM);
  for (int i = 0; i < 100; ++i) {
    if (waitpid(child_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(child_, SIGKILL);  // it does not want to go
  waitpid(child_, nullptr, 0);
}

void PeerProcess::lost() const {
  throw Error(fmt::format(
      "the peers' worker died. Run it by hand to see why: echo '{{\"op\":\"time\"}}' | python {}",
      printable_path(script_)));
}

void PeerProcess::garbled(std::string_view answer) const {
  throw Error(fmt::format(
      "the peers' worker {} answered \"{}\", which is not what bench asked for. Do --peers-python "
      "and --peers-script name the right ones?",
      printable_path(script_), printable(answer, 80)));
}

nlohmann::json PeerProcess::ask(const nlohmann::json& request) {
  const std::string line = json_text(request) + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(to_child_, line.data() + sent, line.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) lost();
    sent += static_cast<std::size_t>(count);
  }
  std::size_t end = unread_.find('\n');
  while (end == std::string::npos) {
    if (unread_.size() > longest_answer) garbled(unread_);
    char block[1 << 16];
    const ssize_t count = read(from_child_, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) lost();
    const std::size_t searched = unread_.size();
    unread_.append(block, static_cast<std::size_t>(count));
    end = unread_.find('\n', searched);
  }
  const std::string line_back = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  nlohmann::json answer = nlohmann::json::parse(line_back, nullptr, false);
  if (!answer.is_object()) garbled(line_back);
  return answer;
}

nlohmann::json PeerProcess::prepare(const Stage& stage) {
  nlohmann::json answer = ask({{"op", "prepare"}, {"stage", to_json(stage, device_)}});
  const auto names = [&](const char* key) {
    const auto list = answer.find(key);
    if (list == answer.end() || !list->is_array()) garbled(json_text(answer));
    for (const nlohmann::json& name : *list)  // they go into tables and CSV
      if (!name.is_string() || !is_printable(name.get_ref<const std::string&>()) ||
          name.get_ref<const std::string&>().find_first_of(",\"") != std::string::npos)
        garbled(json_text(answer));
  };
  names("peers");
  if (answer.contains("partial")) names("partial");
  if (!answer.contains("left_out") || !answer.contains("versions")) garbled(json_text(answer));
  return answer;
}

std::vector<double> PeerProcess::time(const std::string& peer, double seconds) {
  const nlohmann::json answer = ask({{"op", "time"}, {"peer", peer}, {"seconds", seconds}});
  const auto list = answer.find("samples");
  if (list == answer.end() || !list->is_array() || list->empty()) garbled(json_text(answer));
  std::vector<double> samples;
  for (const nlohmann::json& sample : *list) {
    if (!sample.is_number() || !(sample.get<double>() > 0)) garbled(json_text(answer));
    samples.push_back(sample.get<double>());
  }
  return samples;
}

}  // namespace convoy::bench
