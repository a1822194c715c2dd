#include "inspect/worker.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iterator>
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

struct sigaction former[std::size(ending_signals)];

// What the program does by itself, an orderly end say, comes behind.
extern "C" void end_with_group(int signal) {
  if (watched_group > 0) kill(-static_cast<pid_t>(watched_group), SIGKILL);
  for (std::size_t i = 0; i < std::size(ending_signals); ++i)
    if (ending_signals[i] == signal) sigaction(signal, &former[i], nullptr);
  raise(signal);
}

// Signals that are ignored (nohup) stay so.
void watch(pid_t group) {
  watched_group = static_cast<std::sig_atomic_t>(group);
  struct sigaction action {};
  action.sa_handler = end_with_group;
  action.sa_flags = SA_NODEFER;
  for (std::size_t i = 0; i < std::size(ending_signals); ++i)
    if (sigaction(ending_signals[i], nullptr, &former[i]) == 0 && former[i].sa_handler != SIG_IGN &&
        former[i].sa_handler != end_with_group)
      sigaction(ending_signals[i], &action, nullptr);
}
void unwatch() {
  for (std::size_t i = 0; i < std::size(ending_signals); ++i) {
    struct sigaction now {};
    if (sigaction(ending_signals[i], nullptr, &now) == 0 && now.sa_handler == end_with_group)
      sigaction(ending_signals[i], &former[i], nullptr);
  }
  watched_group = 0;
}

/// A process that ends the group if this one ends in a way that no handler sees, as by SIGKILL: a
/// worker may work for minutes, or have children that do. It waits for the end of a pipe whose
/// other end is here. -1: there is none.
pid_t guard(pid_t group, int& leash) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {  // nothing that takes a lock or memory
    setpgid(0, 0);   // a terminal's Ctrl-C is not for it
    if (dup2(ends[0], 0) < 0) _exit(1);
    syscall(SYS_close_range, 1U, ~0U, 0U);
    char byte = 0;
    while (read(0, &byte, 1) < 0 && errno == EINTR) {
    }
    kill(-group, SIGKILL);
    _exit(0);
  }
  close(ends[0]);
  if (child < 0) close(ends[1]);
  leash = child < 0 ? -1 : ends[1];
  return child;
}

/// What the child does between fork and exec: nothing that takes a lock or memory. `told` is closed
/// by exec; otherwise it gets the error number.
[[noreturn]] void become(const char* python, char* const* arguments, char* const* environment,
                         const int (&in)[2], const int (&out)[2], int told, pid_t parent) {
  int failure = 0;
  // If the program ends in any way, SIGKILL included, the worker is of no use: it may stand still,
  // or work for minutes before it looks for the next question.
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || dup2(in[0], 0) < 0 ||
      dup2(out[1], 1) < 0 || null < 0 || dup2(null, 2) < 0)
    failure = errno;
  if (getppid() != parent) _exit(1);  // it ended before it could be told
  if (failure == 0) {
    execvpe(python, arguments, environment);
    failure = errno;
  }
  static_cast<void>(!write(told, &failure, sizeof failure));
  _exit(127);
}

// Starts it in a process group of its own. Returns an error number.
int spawn(pid_t& child, std::string python, std::string script, const int (&in)[2],
          const int (&out)[2], std::vector<std::string> extra_environment) {
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
  int told[2];
  if (pipe2(told, O_CLOEXEC) != 0) return errno;
  const pid_t parent = getpid();
  child = fork();
  if (child == 0) become(python.c_str(), arguments, environment.data(), in, out, told[1], parent);
  int failure = child < 0 ? errno : 0;
  close(told[1]);
  if (child > 0) {
    ssize_t count = 0;
    while ((count = read(told[0], &failure, sizeof failure)) < 0 && errno == EINTR) {
    }
    if (count <= 0) failure = 0;
    if (failure != 0) waitpid(child, nullptr, 0);
  }
  close(told[0]);
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
  guard_ = guard(child_, leash_);
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
  if (guard_ > 0) {  // before the group's number may be another's
    kill(guard_, SIGKILL);
    close(leash_);
    waitpid(guard_, nullptr, 0);
  }
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
  throw Error(
      fmt::format("the {} worker {} answered \"{}\", expected an answer to the request. Do "
                  "--{}-python and --{}-script name the right files?",
                  command_.name, printable_path(command_.script), printable(answer, 80),
                  command_.options, command_.options));
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
