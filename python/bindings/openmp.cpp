#include "openmp.hpp"

#include <dlfcn.h>

#include <atomic>

#include "core/process.hpp"

namespace convoy::python {
namespace {

// The calls that GCC makes of `#pragma omp parallel`; LLVM's and Intel's runtimes have them as
// well. Looked up, not linked: a library of our own would bring a pool of its own.
struct Runtime {
  void (*parallel)(void (*body)(void*), void* context, unsigned threads, unsigned flags);
  int (*thread)();
  int (*threads)();  // of the next region of the calling thread
  int generation;    // a forked child has none of its threads
};

constinit std::atomic<const Runtime*> kept{nullptr};

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

const Runtime* runtime() {
  if (const Runtime* found = kept.load(std::memory_order_acquire)) return found;
  Runtime found{};
  if (!find(found.parallel, "GOMP_parallel") || !find(found.thread, "omp_get_thread_num") ||
      !find(found.threads, "omp_get_max_threads"))
    return nullptr;
  found.generation = fork_generation();
  const Runtime* first = nullptr;
  const auto* const made = new Runtime(found);
  if (kept.compare_exchange_strong(first, made, std::memory_order_acq_rel)) return made;
  delete made;
  return first;
}

void run(int count, void (*body)(void*, int), void* context) {
  const Runtime& openmp = *kept.load(std::memory_order_acquire);
  if (openmp.generation != fork_generation()) return body(context, 0);
  struct Region {
    int count;
    void (*body)(void*, int);
    void* context;
    int (*thread)();
  } region{count, body, context, openmp.thread};
  // 0: as many as other regions. A team that shrinks and grows ends threads and starts new ones.
  const unsigned threads = openmp.threads() >= count ? 0 : static_cast<unsigned>(count);
  openmp.parallel(
      [](void* its) {
        const Region& self = *static_cast<Region*>(its);
        if (const int i = self.thread(); i < self.count) self.body(self.context, i);
      },
      &region, threads, 0);
}

}  // namespace

CallerThreads openmp_threads() {
  return runtime() ? run : nullptr;
}

}  // namespace convoy::python
