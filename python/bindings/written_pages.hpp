// Which pages of this process's memory have been written to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace convoy::python {

constexpr std::uintptr_t page_bytes = 4096;

/// What is known of a range from one call to the next.
struct PageWatch {
  std::uint64_t settled = 0;  // how often memory had been registered when all of it was found
                              // private and in memory; 0: never
};

/// Calls found(begin, end) for each stretch of pages in [begin, end) that may hold other bytes than
/// when this was last called for them, whoever wrote them: the program, the kernel for it, another
/// process through ptrace. Pages count as written the first time, and always where the kernel can't
/// tell: memory that is shared or of a file, or not in the machine's memory. A device that writes
/// by itself to pinned memory is not seen. Returns false where the kernel can't tell for all of it:
/// before Linux 6.7, where a sandbox forbids it, on other page sizes.
///
/// begin and end are multiples of page_bytes. With the GIL, which orders callers.
///
/// Source: Documentation/admin-guide/mm/{userfaultfd,pagemap}.rst of Linux, UFFD_FEATURE_WP_ASYNC
/// and PAGEMAP_SCAN.
bool written_pages(std::uintptr_t begin, std::uintptr_t end, PageWatch& watch,
                   const std::function<void(std::uintptr_t, std::uintptr_t)>& found);

/// For tests: the kernel is not asked from now on, or is again.
void ask_kernel_for_pages(bool ask);

}  // namespace convoy::python
