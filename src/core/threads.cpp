#include "core/threads.hpp"

#include <fmt/core.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "convoy/error.hpp"
#include "core/machine.hpp"
#include "core/printable.hpp"
#include "core/process.hpp"
#include "core/trace.hpp"

namespace convoy {
namespace {

// oneTBB belongs to one process: a child has its state and none of its workers. This is the fork
// generation of the process that began to use it, -1 while none has.
constinit std::atomic<int> tbb_generation{-1};

bool may_use_tbb() {
  const int now = fork_generation();
  int owner = tbb_generation.load(std::memory_order_relaxed);
  if (owner == -1 && tbb_generation.compare_exchange_strong(owner, now)) return true;
  return owner == now;
}

// The last slots first. With many cores any threads of an arena may take a few tasks; a body that
// counts on the first slots is found wrong with two.
int slot_of(int thread, int count) {
  return count - 1 - thread;
}

// Neighbouring tasks, which one thread begins with and any may help with. Alone on its cache lines.
struct alignas(128) Share {
  std::atomic<Index> next;
  Index end;
};

// Each thread is handed a share of the tasks, the same in each call, so that what it reads of them
// stays in its caches; where it is done it takes from the others' shares. So it does not matter how
// many threads come, nor when. Halving the range until all threads have work, as TBB's other
// partitioners do, takes 18 us more with 16 threads (docs/lab/cpu-cost-model.md).
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

  /// What one of the threads does. first: its share.
  void work(Index first, int thread) {
    const int slot = slot_of(thread, count_);
    for (Index i = 0; i < shares_; ++i) {
      Share& share = all_[(first + i) % shares_];
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

#if defined(__SANITIZE_THREAD__)
// The thread sanitizer does not see into libtbb and would report its tasks as races. Plain threads
// show it the same bodies side by side.
struct Threads::Arena {
  explicit Arena(int) {}
  template <class Work>
  void run(int threads, const Work& work) {
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread, thread);
    work(0, 0);
    for (std::thread& other : others) other.join();
  }
};
#else
struct Threads::Arena {
  tbb::task_arena arena;
  // TBB starts no more workers than cores; asked for more, it would say so on standard error.
  explicit Arena(int count) : arena(std::min(count, tbb::info::default_concurrency())) {}
  template <class Work>
  void run(int threads, const Work& work) {
    arena.execute([&] {
      tbb::parallel_for(
          0, threads, [&](int first) { work(first, tbb::this_task_arena::current_thread_index()); },
          tbb::static_partitioner());
    });
  }
};
#endif

void Threads::spread(Index tasks, void (*body)(void*, Index, int), void* context) {
  Loop loop(tasks, count_, body, context);
  const int threads = static_cast<int>(std::min<Index>(tasks, count_));
  if (caller_)
    caller_(
        threads, [](void* its, int i) { static_cast<Loop*>(its)->work(i, i); }, &loop);
  else
    arena_->run(threads, [&](int first, int thread) { loop.work(first, thread); });
}

void Threads::run_unlogged(Index tasks, void (*body)(void*, Index, int), void* context) {
  if (tasks > 1 && count_ > 1 && (caller_ || (arena_ && may_use_tbb())))
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
    throw Error(fmt::format("threads: a log of {} slots, expected {}.", log->slots(), count_));
  log_ = log;
  least_to_spread_ = log ? 0 : count_ == 1 ? std::numeric_limits<Index>::max() : 2;
}

Threads::Threads(int count, CallerThreads caller) : count_(count), caller_(caller) {
  check_threads(count);
  if (count < 1) throw Error("threads: 0, expected at least 1.");
  if (count > 1 && !caller && may_use_tbb()) arena_ = std::make_unique<Arena>(count);
  log_to(nullptr);
}
Threads::~Threads() {
  // What a child inherited is left alone: taking it down may wait for a thread that is not there.
  if (arena_ && !may_use_tbb()) static_cast<void>(arena_.release());
}

void check_threads(int count) {
  if (count < 0 || count > most_threads)
    throw Error(
        fmt::format("threads: {}, expected 1 to {}, or 0 for every core.", count, most_threads));
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
