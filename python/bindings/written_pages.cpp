#include "written_pages.hpp"

#include <fcntl.h>
#include <linux/types.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace convoy::python {
namespace {

// <linux/fs.h> and <linux/userfaultfd.h> have these from Linux 6.7 on; what compiles this may be
// older than what runs it.
constexpr std::uint64_t feature_wp_async = 1U << 15, feature_wp_unpopulated = 1U << 13;
constexpr int user_mode_only = 1;
constexpr std::uint64_t is_written = 1U << 1, is_file = 1U << 2, is_present = 1U << 3;
constexpr std::uint64_t protect_matching = 1U << 0, check_protected = 1U << 1;

struct PageRegion {
  std::uint64_t start, end, categories;
};
struct ScanArguments {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
static_assert(sizeof(ScanArguments) == 96);
const unsigned long pagemap_scan = _IOWR('f', 16, ScanArguments);

/// What the kernel has given this process for its own memory. A forked child has the parent's: it
/// tells of the parent's memory, so that the child asks for its own.
struct Kernel {
  pid_t process = -1;
  int faults = -1, pagemap = -1;
  bool ask = true;
  std::uint64_t registrations = 1;  // and one: behind one of them, memory may be another kind
};
Kernel kernel;

bool open_kernel() {
  if (!kernel.ask) return false;
  const pid_t process = getpid();
  if (kernel.process == process) return kernel.pagemap >= 0;
  // The parent's files stay open in a child: one of them may be in use there by another thread's
  // child, and they cost nothing.
  kernel.process = process;
  kernel.faults = kernel.pagemap = -1;
  // Under a filter of system calls a new one may end the process.
  if (prctl(PR_GET_SECCOMP) != 0) return false;
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(page_bytes)) return false;
  const int faults = static_cast<int>(
      syscall(SYS_userfaultfd, static_cast<long>(O_CLOEXEC | O_NONBLOCK | user_mode_only)));
  if (faults < 0) return false;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = feature_wp_async | feature_wp_unpopulated;
  const int pagemap =
      ioctl(faults, UFFDIO_API, &api) == 0 ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
  if (pagemap < 0) {
    close(faults);
    return false;
  }
  kernel.faults = faults;
  kernel.pagemap = pagemap;
  return true;
}

using Found = std::function<void(std::uintptr_t, std::uintptr_t)>;

/// Protects what it finds, so that the next call tells what was written after this one. False
/// where some of it is not registered. all_kinds: pages that are of files or not in memory are
/// found, too, and `settled` tells that there were none; without, the kernel has a loop of its own,
/// twenty times as fast, that finds pages which were dropped, but not where all of a page table
/// was.
bool scan(std::uintptr_t begin, std::uintptr_t end, bool all_kinds, bool& settled,
          const Found& found) {
  std::array<PageRegion, 32> regions{};
  settled = all_kinds;
  while (begin < end) {
    ScanArguments asked{};
    asked.size = sizeof(asked);
    asked.flags = protect_matching | check_protected;
    asked.start = begin;
    asked.end = end;
    asked.vec = reinterpret_cast<std::uintptr_t>(regions.data());
    asked.vec_len = regions.size();
    if (all_kinds) {
      asked.category_inverted = is_present;
      asked.category_anyof_mask = asked.return_mask = is_written | is_file | is_present;
    } else {
      asked.category_mask = asked.return_mask = is_written;
    }
    const int count = ioctl(kernel.pagemap, pagemap_scan, &asked);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || asked.walk_end <= begin) return false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      found(regions.at(i).start, regions.at(i).end);
      const std::uint64_t kinds = regions.at(i).categories;
      if ((kinds & is_file) != 0 || (kinds & is_present) == 0) settled = false;
    }
    begin = asked.walk_end;
  }
  return true;
}

/// Whether no page table of the range was dropped: each has a page in memory.
bool has_page_tables(std::uintptr_t begin, std::uintptr_t end) {
  constexpr std::uintptr_t table = std::uintptr_t{2} << 20;  // what one covers
  for (std::uintptr_t at = begin; at < end; at = (at / table + 1) * table) {
    unsigned char in_memory = 0;
    if (mincore(reinterpret_cast<void*>(at), page_bytes, &in_memory) != 0 || (in_memory & 1) == 0)
      return false;
  }
  return true;
}

}  // namespace

bool written_pages(std::uintptr_t begin, std::uintptr_t end, PageWatch& watch, const Found& found) {
  if (begin >= end || !open_kernel()) return false;
  const bool fast = watch.settled == kernel.registrations && has_page_tables(begin, end);
  bool settled = false;
  if (scan(begin, end, !fast, settled, found)) {
    if (!fast) watch.settled = settled ? kernel.registrations : 0;
    return true;
  }
  // Not registered yet, or mapped anew since.
  watch.settled = 0;
  uffdio_register asked{};
  asked.range = {begin, end - begin};
  asked.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(kernel.faults, UFFDIO_REGISTER, &asked) != 0) return false;
  ++kernel.registrations;
  return scan(begin, end, true, settled, found);
}

void ask_kernel_for_pages(bool ask) {
  kernel.ask = ask;
}

}  // namespace convoy::python
