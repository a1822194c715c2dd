#include "core/threads.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "convoy/error.hpp"
#include "core/crew.hpp"
#include "core/machine.hpp"
#include "core/printable.hpp"
#include "core/process.hpp"
#include "core/trace.hpp"

namespace convoy {
namespace {

// Workers belong to one process: a child has none of them. This is the fork generation of the
// process that began to use them, -1 while none has.
constinit std::atomic<int> crew_generation{-1};

bool may_use_crew() {
  const int now = fork_generation();
  int owner = crew_generation.load(std::memory_order_relaxed);
  if (owner == -1 && crew_generation.compare_exchange_strong(owner, now)) return true;
  return owner == now;
}

// The last slots first. With many cores any threads may take a few tasks; a body that counts on the
// first slots is found wrong with two.
int slot_of(int number, int count) {
  return count - 1 - number;
}

// Neighbouring tasks, which one thread begins with and any may help with. Alone on its cache lines.
struct alignas(128) Share {
  std::atomic<Index> next;
  Index end;
};

// Each thread is handed a share of the tasks, the same in each call, so that what it reads of them
// stays in its caches; when it is done it takes from the others' shares. So it does not matter how
// many threads come, nor when: whoever returns from `work` leaves no task that nobody has begun.
class Loop {
 public:
  Loop(Index tasks, int count, void (*body)(void*, Index, int), void* context)
      : shares_(std::min({tasks, static_cast<Index>(count), most_shares})),
        count_(count),
        body_(body),
        context_(context) {
    for (Index i = 0; i < shares_; ++i) {
      all_[i].next.store(i * tasks / shares_, std::memory_order_relaxed);
      all_[i].end = (i + 1) * tasks / shares_;
    }
  }

  /// What the thread of a number below count does.
  void work(int number) {
    const int slot = slot_of(number, count_);
    for (Index i = 0; i < shares_; ++i) {
      Share& share = all_[static_cast<std::size_t>((number + i) % shares_)];
      while (share.next.load(std::memory_order_relaxed) < share.end) {
        const Index task = share.next.fetch_add(1, std::memory_order_relaxed);
        if (task < share.end) body_(context_, task, slot);
      }
    }
  }

 private:
  static constexpr Index most_shares = 32;  // 4 KiB of stack
  std::array<Share, most_shares> all_;
  Index shares_;
  int count_;
  void (*body_)(void*, Index, int);
  void* context_;
};

}  // namespace

void Threads::spread(Index tasks, void (*body)(void*, Index, int), void* context) noexcept {
  Loop loop(tasks, count_, body, context);
  const int threads = static_cast<int>(std::min<Index>(tasks, count_));
  const Job job{[](void* its, int number) { static_cast<Loop*>(its)->work(number); }, &loop};
  if (caller_)
    do_together(job, threads, caller_);
  else
    do_together(job, threads);
}

void Threads::run_unlogged(Index tasks, void (*body)(void*, Index, int), void* context) {
  if (tasks > 1 && count_ > 1 && (caller_ || (has_crew_ && may_use_crew())))
    spread(tasks, body, context);
  else
    for (Index task = 0; task < tasks; ++task) body(context, task, 0);
}

void Threads::run_logged(Index tasks, void (*body)(void*, Index, int), void* context) {
  struct Logged {
    void (*body)(void*, Index, int);
    void* context;
    TaskLog* log;
  } logged{body, context, log_};
  log_->begin_loop();
  run_unlogged(
      tasks,
      [](void* l, Index task, int slot) {
        const auto& its = *static_cast<Logged*>(l);
        const auto begin = TaskLog::Clock::now();
        its.body(its.context, task, slot);
        its.log->add(slot, task, begin, TaskLog::Clock::now());
      },
      &logged);
}

void Threads::run(Index tasks, void (*body)(void*, Index, int), void* context) {
  if (log_)
    run_logged(tasks, body, context);
  else
    run_unlogged(tasks, body, context);
}

void Threads::log_to(TaskLog* log) {
  if (log && log->slots() != count_)
    throw Error(fmt::format("threads: the log has {} slots, expected {}.", log->slots(), count_));
  log_ = log;
  least_to_spread_ = log ? 0 : count_ == 1 ? std::numeric_limits<Index>::max() : 2;
}

Threads::Threads(int count, CallerThreads caller) : count_(count), caller_(caller) {
  check_threads(count);
  if (count < 1) throw Error("threads: found 0, expected 1 or more.");
  if (count > 1 && !caller && may_use_crew()) {
    has_crew_ = true;
    start_workers(count - 1);
  }
  log_to(nullptr);
}

void check_threads(int count) {
  if (count < 0 || count > most_threads)
    throw Error(fmt::format("threads: found {}, expected 1 to {}, or 0 for every core.", count,
                            most_threads));
}

int default_threads() {
  if (const char* text = std::getenv("CONVOY_NUM_THREADS")) {
    int value = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, failure] = std::from_chars(text, end, value);
    if (failure != std::errc() || stop != end || value < 1 || value > most_threads)
      throw Error(
          fmt::format("CONVOY_NUM_THREADS={}: expected a whole number from 1 to {}. Unset it to "
                      "use every core.",
                      printable(text), most_threads));
    return value;
  }
  return std::min(usable_cores(), most_threads);
}

}  // namespace convoy
