#include "count_allocations.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<long> count = 0, failing = -1, seen = 0;
std::atomic<bool> fails_later = false;
// Of the program itself: reading them allocates nothing.
thread_local constinit long own_count = 0;
thread_local constinit void* own_last = nullptr;

/// Counts an allocation, and says whether it fails.
[[maybe_unused]] bool fails(void* caller) {
  count.fetch_add(1, std::memory_order_relaxed);
  ++own_count;
  own_last = caller;
  const long which = failing.load(std::memory_order_relaxed);
  if (which < 0) return false;
  const long now = seen.fetch_add(1, std::memory_order_relaxed);
  return fails_later ? now >= which : now == which;
}
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void* no_memory() {
  errno = ENOMEM;
  return nullptr;
}
// glibc allows a program to define these and to reach the originals by their other names.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t items, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  if (fails(__builtin_return_address(0))) return no_memory();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t items, std::size_t bytes) {
  if (fails(__builtin_return_address(0))) return no_memory();
  return __libc_calloc(items, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
  if (fails(__builtin_return_address(0))) return no_memory();
  return __libc_realloc(memory, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  if (fails(__builtin_return_address(0))) return no_memory();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t bytes) {
  if (fails(__builtin_return_address(0))) return no_memory();
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment,
                                                          std::size_t bytes) {
  if (fails(__builtin_return_address(0))) return ENOMEM;
  void* const made = __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}
}
#endif

namespace convoy {
long allocations() {
  return count;
}
long allocations_of_this_thread() {
  return own_count;
}
const char* last_allocation_of_this_thread() {
  Dl_info from{};
  if (own_last == nullptr || dladdr(own_last, &from) == 0 || from.dli_fname == nullptr) return "";
  return from.dli_fname;
}
void fail_allocation(long which, bool later_too) {
  fails_later = later_too;
  seen = 0;
  failing = which;
}
}  // namespace convoy
