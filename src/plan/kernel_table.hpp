// Every kernel that the planner knows, in one list.
#pragma once

#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "core/kernel.hpp"

namespace convoy {

/// All kernels of this build, in the order in which ties are broken: the more special first.
std::span<const Kernel* const> kernel_table();

/// Adds kernels of another library at the end of the table, such as those of src/teaching. They
/// live as long as the program. Only before the table is read for the first time: plans must not
/// differ by when they were made. Throws Error after that, and for a name that the table has
/// already on that kind of device; then none is added.
void add_kernels(std::span<const Kernel* const> kernels);

/// Whether the name is one of the teaching kernels (src/teaching), of which this library knows no
/// more: they may be in the table or not.
bool is_teaching_kernel(std::string_view name);

/// The kernel of that name on that kind of device; null if there is none.
const Kernel* find_kernel(std::string_view name, DeviceKind device);

/// Whether it runs chains that no plan of one stage has: several stages, or constants folded in.
inline bool is_for_chains(const Kernel& kernel) {
  return kernel.facts().least_stages > 1 || kernel.facts().folds;
}

/// A list that others add to until it is read for the first time; from any thread. The kernel table
/// is one.
class KernelList {
 public:
  explicit KernelList(std::span<const Kernel* const> own) : kernels_(own.begin(), own.end()) {}
  /// As add_kernels.
  void add(std::span<const Kernel* const> kernels);
  /// No later call changes what this returns.
  std::span<const Kernel* const> read();

 private:
  std::mutex mutex_;
  bool read_ = false;
  std::vector<const Kernel*> kernels_;
};

}  // namespace convoy
