// Every kernel that the planner knows, in one list.
#pragma once

#include <span>

#include "core/kernel.hpp"

namespace convoy {

/// All kernels of this build, in the order in which ties are broken: the more special first.
std::span<const Kernel* const> kernel_table();

/// The kernel of that name on that kind of device; null if there is none.
const Kernel* find_kernel(std::string_view name, DeviceKind device);

/// Whether it runs chains that no plan of one stage has: several stages, or constants folded in.
inline bool is_for_chains(const Kernel& kernel) {
  return kernel.facts().least_stages > 1 || kernel.facts().folds;
}

}  // namespace convoy
