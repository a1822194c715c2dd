// The threads that CPU kernels run on: workers of the process (core/crew.hpp), or threads of the
// caller's.
#pragma once

#include <type_traits>

#include "convoy/stage.hpp"
#include "convoy/threads.hpp"

namespace convoy {

class TaskLog;

class Threads {
 public:
  /// count: 1 to most_threads, else throws Error. caller: null: threads of Convoy's own.
  explicit Threads(int count, CallerThreads caller = nullptr);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }

  /// Calls body(task, slot) once for each task in [0, tasks), on up to count() threads. slot is in
  /// [0, count()), also of few tasks any of them, and no two bodies that run at the same time share
  /// one: index scratch by it.
  /// Tasks may run in any order; bits may not depend on it. body must not throw. Runs inline for
  /// one task or one thread, and in a child forked by a process that had used several threads of
  /// Convoy's own. Never throws: whatever threads do not come, the calling one does the rest.
  template <class Body>
  void for_each(Index tasks, Body&& body) {
    if (tasks < least_to_spread_) {
      for (Index task = 0; task < tasks; ++task) body(task, 0);
      return;
    }
    using B = std::remove_reference_t<Body>;
    run(
        tasks, [](void* b, Index task, int slot) { (*static_cast<B*>(b))(task, slot); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  /// From now on begin and end of every task go to `log`, which must have count() slots; null: to
  /// none again. Not while something runs. Without a log tasks take no time stamps.
  void log_to(TaskLog* log);

 private:
  void run(Index tasks, void (*body)(void*, Index, int), void* context);
  void run_logged(Index tasks, void (*body)(void*, Index, int), void* context);
  void run_unlogged(Index tasks, void (*body)(void*, Index, int), void* context);
  void spread(Index tasks, void (*body)(void*, Index, int), void* context) noexcept;
  int count_;
  bool has_crew_ = false;  // uses workers of the process
  CallerThreads caller_;
  Index least_to_spread_ = 0;  // tasks of a loop; fewer run inline. All pass `run` with a log
  TaskLog* log_ = nullptr;
};

/// More than any machine has cores.
constexpr int most_threads = 4096;

/// Throws Error unless `count` is 1 to most_threads, or 0 for every core.
void check_threads(int count);

/// CONVOY_NUM_THREADS if set (throws Error unless 1 to most_threads), else every usable core.
int default_threads();

}  // namespace convoy
