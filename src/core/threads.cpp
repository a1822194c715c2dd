#include "core/threads.hpp"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "convoy/error.hpp"

namespace convoy {

struct Threads::Arena {
  tbb::task_arena arena;
  explicit Arena(int count) : arena(count) {}
};

Threads::Threads(int count) : count_(count) {
  if (count < 1)
    throw Error("threads: " + std::to_string(count) + ", expected at least 1. Leave it out to use every core.");
  if (count > 1) arena_ = std::make_unique<Arena>(count);
}
Threads::~Threads() = default;

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
  return tbb::this_task_arena::max_concurrency();
}

}  // namespace convoy
