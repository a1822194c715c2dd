#include "core/threads.hpp"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "convoy/error.hpp"
#include "core/machine.hpp"

namespace convoy {

#if defined(__SANITIZE_THREAD__)
// The thread sanitizer does not see into libtbb and would report its tasks as races. Plain threads
// show it the same bodies side by side.
struct Threads::Arena {
  explicit Arena(int) {}
};

void Threads::run(Index tasks, void (*body)(void*, Index, int), void* context) {
  std::atomic<Index> next{0};
  const auto work = [&](int slot) {
    for (Index task = next++; task < tasks; task = next++) body(context, task, slot);
  };
  std::vector<std::thread> others;
  for (int slot = 1; slot < count_; ++slot) others.emplace_back(work, slot);
  work(0);
  for (std::thread& other : others) other.join();
}
#else
struct Threads::Arena {
  tbb::task_arena arena;
  // TBB starts no more workers than cores; asked for more, it would say so on standard error.
  explicit Arena(int count) : arena(std::min(count, tbb::info::default_concurrency())) {}
};

void Threads::run(Index tasks, void (*body)(void*, Index, int), void* context) {
  arena_->arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<Index>(0, tasks, 1),
        [&](const tbb::blocked_range<Index>& range) {
          const int slot = tbb::this_task_arena::current_thread_index();
          for (Index task = range.begin(); task != range.end(); ++task) body(context, task, slot);
        },
        tbb::simple_partitioner());
  });
}
#endif

Threads::Threads(int count) : count_(count) {
  if (count < 1)
    throw Error("threads: " + std::to_string(count) +
                ", expected at least 1. Leave it out to use every core.");
  if (count > 1) arena_ = std::make_unique<Arena>(count);
}
Threads::~Threads() = default;

int default_threads() {
  if (const char* text = std::getenv("CONVOY_NUM_THREADS")) {
    int value = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, failure] = std::from_chars(text, end, value);
    if (failure != std::errc() || stop != end || value < 1)
      throw Error("CONVOY_NUM_THREADS=" + std::string(text) +
                  ": expected a positive integer. Unset it to use every core.");
    return value;
  }
  return usable_cores();
}

}  // namespace convoy
