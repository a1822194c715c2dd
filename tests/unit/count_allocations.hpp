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

}  // namespace convoy
