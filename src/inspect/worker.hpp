// A script in another process, spoken to over two pipes: a question and an answer are a line of
// JSON each.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::inspect {

struct WorkerCommand {
  std::string python, script;
  std::vector<std::string> environment;  // NAME=value, beside ours
  /// The group is stopped whenever nothing is asked of it, for idle threads of some libraries spin
  /// for a while.
  bool stopped = false;
  // For messages.
  std::string name;      // "peers'": the peers' worker
  std::string options;   // "peers": --peers-python and --peers-script chose it
  std::string question;  // that can be asked by hand
  std::string without_python, without_script;  // what to do where there is none
};

/// The worker and all that it starts are one process group, which ends with this object. A signal
/// that ends our process ends the group too; where that can't be caught, the kernel wakes a group
/// that lost its parent and hangs it up. One of these lives at a time.
class Worker {
 public:
  /// Throws Error when it can't be started.
  explicit Worker(WorkerCommand command);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const WorkerCommand& command() const { return command_; }
  /// The answer, an object of at most 64 MiB. Throws Error when the worker is gone or answers
  /// something else.
  nlohmann::json ask(const nlohmann::json& request);
  /// Throws Error: that is no answer to what was asked.
  [[noreturn]] void garbled(std::string_view answer) const;

 private:
  nlohmann::json answer_to(const nlohmann::json& request);
  void stop() const;
  [[noreturn]] void lost() const;
  WorkerCommand command_;
  pid_t child_ = -1;  // also the number of its process group
  pid_t guard_ = -1;  // ends the worker if this program can't
  int leash_ = -1;    // the guard waits for its end
  int to_child_ = -1;
  int from_child_ = -1;
  std::string unread_;
};

}  // namespace convoy::inspect
