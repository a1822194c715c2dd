#include "inspect/worker.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"

extern char** environ;

namespace convoy::inspect {
namespace {

constexpr std::size_t longest_answer = 64 << 20;

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
  // Of two entries with one name the first would count.
  const auto is_replaced = [&](std::string_view inherited) {
    const std::string_view name = inherited.substr(0, inherited.find('=') + 1);
    return std::any_of(extra_environment.begin(), extra_environment.end(),
                       [&](const std::string& entry) { return entry.starts_with(name); });
  };
  std::vector<char*> environment;
  for (char** entry = environ; *entry; ++entry)
    if (!is_replaced(*entry)) environment.push_back(*entry);
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

Worker::Worker(WorkerCommand command) : command_(std::move(command)) {
  if (access(command_.script.c_str(), R_OK) != 0)
    throw Error(
        fmt::format("{}: not found. {}", printable_path(command_.script), command_.without_script));
  const std::string& python = command_.python;
  if (python.find('/') != std::string::npos && access(python.c_str(), X_OK) != 0)
    throw Error(fmt::format("{}: not found. {}", printable_path(python), command_.without_python));
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) throw Error(fmt::format("pipe: {}", std::strerror(errno)));
  if (pipe2(out, O_CLOEXEC) != 0) {
    const int failure = errno;
    close(in[0]), close(in[1]);
    throw Error(fmt::format("pipe: {}", std::strerror(failure)));
  }
  const int failure = spawn(child_, python, command_.script, in, out, command_.environment);
  close(in[0]);
  close(out[1]);
  to_child_ = in[1];
  from_child_ = out[0];
  if (failure != 0) {
    child_ = -1;
    close(to_child_);
    close(from_child_);
    throw Error(fmt::format("{}: can't be started: {}. {}", printable_path(python),
                            std::strerror(failure), command_.without_python));
  }
  signal(SIGPIPE, SIG_IGN);  // a worker that died shows as a failed write
  watch(child_);
}

Worker::~Worker() {
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
void Worker::stop() const {
  kill(-child_, SIGSTOP);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WSTOPPED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
}

void Worker::lost() const {
  throw Error(fmt::format("the {} worker died. Run it by hand to see why: echo '{}' | python {}",
                          command_.name, command_.question, printable_path(command_.script)));
}

void Worker::garbled(std::string_view answer) const {
  throw Error(fmt::format(
      "the {} worker {} answered \"{}\", which is not what was asked for. Do --{}-python and "
      "--{}-script name the right ones?",
      command_.name, printable_path(command_.script), printable(answer, 80), command_.options,
      command_.options));
}

nlohmann::json Worker::ask(const nlohmann::json& request) {
  if (!command_.stopped) return answer_to(request);
  kill(-child_, SIGCONT);
  nlohmann::json answer = answer_to(request);  // throws: bench ends, and the group with it
  stop();
  return answer;
}

nlohmann::json Worker::answer_to(const nlohmann::json& request) {
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

}  // namespace convoy::inspect
