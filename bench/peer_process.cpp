#include "peer_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
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
    case Kind::none:
    case Kind::if_:
    case Kind::lif:
      break;
  }
  nlohmann::json json{{"dtype", to_text(stage.dtype)},
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
                      {"lo", stage.act.lo()},
                      {"hi", stage.act.hi()},
                      {"slope", stage.act.slope()},
                      {"pool", nullptr}};
  if (const auto& pool = stage.pool)
    json["pool"] = {{"window", pair(pool->window)},
                    {"stride", pair(pool->stride)},
                    {"pad", pair(pool->pad)},
                    {"dil", pair(pool->dil)},
                    {"ceil", pool->ceil}};
  return json;
}

constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t watched_group = 0;

extern "C" void end_with_group(int signal) {
  if (watched_group > 0) kill(-static_cast<pid_t>(watched_group), SIGKILL);
  raise(signal);  // the action is the default one again
}

// Signals that are ignored (nohup) or handled already stay so.
void watch(pid_t group) {
  watched_group = static_cast<std::sig_atomic_t>(group);
  struct sigaction action {
  }, before{};
  action.sa_handler = end_with_group;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (const int signal : ending_signals)
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)
      sigaction(signal, &action, nullptr);
}
void unwatch() {
  for (const int signal : ending_signals) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == end_with_group)
      std::signal(signal, SIG_DFL);
  }
  watched_group = 0;
}

// Starts it in a process group of its own. Returns an error number.
int spawn(pid_t& child, std::string python, std::string script, const int (&in)[2],
          const int (&out)[2], std::vector<std::string> extra_environment) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> environment;
  for (char** entry = environ; *entry; ++entry) environment.push_back(*entry);
  for (std::string& entry : extra_environment) environment.push_back(entry.data());
  environment.push_back(nullptr);
  char* arguments[] = {python.data(), script.data(), nullptr};
  const int failure =
      posix_spawnp(&child, python.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

}  // namespace

PeerProcess::PeerProcess(const std::string& python, const std::string& script, DeviceKind device,
                         int threads, bool stopped)
    : script_(script), device_(device), stopped_(stopped) {
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
  // glibc's default of giving large blocks back to the system halves PyTorch's speed at large
  // batches; the peers are to be at their best.
  std::vector<std::string> extra = {fmt::format("CONVOY_PEER_THREADS={}", threads),
                                    "MALLOC_MMAP_THRESHOLD_=4294967296",
                                    "MALLOC_TRIM_THRESHOLD_=17179869184"};
  if (!gpu) extra.emplace_back("CUDA_VISIBLE_DEVICES=");
  const int failure = spawn(child_, python, script, in, out, std::move(extra));
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
  watch(child_);
}

PeerProcess::~PeerProcess() {
  if (child_ < 0) return;
  close(to_child_);
  close(from_child_);
  kill(-child_, SIGTERM);
  kill(-child_, SIGCONT);
  // Two seconds to go. It is not waited for until the group was killed: nobody else gets its
  // number.
  const auto gone = [&] {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  };
  for (int i = 0; i < 100 && !gone(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(-child_, SIGKILL);
  unwatch();
  waitpid(child_, nullptr, 0);
}

// Returns when the worker stands still, or is gone, which the next question finds out.
void PeerProcess::stop() const {
  kill(-child_, SIGSTOP);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WSTOPPED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
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
  if (!stopped_) return answer_to(request);
  kill(-child_, SIGCONT);
  nlohmann::json answer = answer_to(request);  // throws: bench ends, and the group with it
  stop();
  return answer;
}

nlohmann::json PeerProcess::answer_to(const nlohmann::json& request) {
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

nlohmann::json PeerProcess::prepare(const Stage& stage, bool apart) {
  nlohmann::json answer =
      ask({{"op", "prepare"}, {"stage", to_json(stage, device_)}, {"apart", apart}});
  const auto names = [&](const char* key) {
    const auto list = answer.find(key);
    if (list == answer.end() || !list->is_array()) garbled(json_text(answer));
    for (const nlohmann::json& name : *list)  // they go into tables and CSV
      if (!name.is_string() || !is_printable(name.get_ref<const std::string&>()) ||
          name.get_ref<const std::string&>().find_first_of(",\"") != std::string::npos)
        garbled(json_text(answer));
  };
  names("peers");
  for (const char* key : {"partial", "apart"})
    if (answer.contains(key)) names(key);
  const auto method = answer.find("method");
  if (!answer.contains("left_out") || !answer.contains("versions") ||
      (method != answer.end() && !method->is_string()))
    garbled(json_text(answer));
  return answer;
}

std::vector<double> PeerProcess::time(const std::string& peer, double seconds, bool apart) {
  const nlohmann::json answer =
      ask({{"op", "time"}, {"peer", peer}, {"seconds", seconds}, {"apart", apart}});
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
