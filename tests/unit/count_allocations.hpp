// Counts what all threads allocate, by standing in for malloc in the test program.
#pragma once

namespace convoy {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool counts_allocations = false;
#else
inline constexpr bool counts_allocations = true;
#endif

/// Calls of malloc, calloc, realloc and aligned_alloc by any thread so far; operator new ends
/// there.
long allocations();

/// The same by the calling thread alone: CUDA's driver has threads of its own, which allocate when
/// they like.
long allocations_of_this_thread();

/// The library or program that made the calling thread's last allocation, by the caller of malloc:
/// the driver's own are told from ours. Empty: there was none.
const char* last_allocation_of_this_thread();

/// From now on the allocation of that number fails, counted from 0, and with `later_too` all that
/// follow; negative: none. Of all threads.
void fail_allocation(long which, bool later_too);

}  // namespace convoy
