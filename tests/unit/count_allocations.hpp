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

/// From now on the allocation of that number fails, counted from 0, and with `later_too` all that
/// follow; negative: none. Of all threads.
void fail_allocation(long which, bool later_too);

}  // namespace convoy
