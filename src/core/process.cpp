#include "core/process.hpp"

#include <pthread.h>

namespace convoy {

constinit std::atomic<int> process::forks{0};

namespace {
// Where this fails (no memory at the start of the program) a child keeps generation 0.
[[maybe_unused]] const int registered = pthread_atfork(
    nullptr, nullptr, [] { process::forks.fetch_add(1, std::memory_order_relaxed); });
}  // namespace

}  // namespace convoy
