#include "core/threads.hpp"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "convoy/error.hpp"
#include "core/machine.hpp"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#else
#define __tsan_acquire(address) static_cast<void>(address)
#define __tsan_release(address) static_cast<void>(address)
#endif

namespace convoy {

struct Threads::Arena {
  tbb::task_arena arena;
  // TBB starts no more workers than cores; asked for more, it would say so on standard error.
  explicit Arena(int count) : arena(std::min(count, tbb::info::default_concurrency())) {}
};

Threads::Threads(int count) : count_(count) {
  if (count < 1)
    throw Error("threads: " + std::to_string(count) + ", expected at least 1. Leave it out to use every core.");
  if (count > 1) arena_ = std::make_unique<Arena>(count);
}
Threads::~Threads() = default;

void Threads::run(Index tasks, void (*body)(void*, Index, int), void* context) {
  // libtbb is not built for the thread sanitizer, which is told here what TBB's fork and join order.
  char fork = 0, join = 0;
  __tsan_release(&fork);
  arena_->arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<Index>(0, tasks, 1),
        [&](const tbb::blocked_range<Index>& range) {
          __tsan_acquire(&fork);
          const int slot = tbb::this_task_arena::current_thread_index();
          for (Index task = range.begin(); task != range.end(); ++task) body(context, task, slot);
          __tsan_release(&join);
        },
        tbb::simple_partitioner());
  });
  __tsan_acquire(&join);
}

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
