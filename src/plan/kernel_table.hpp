// Every kernel that the planner knows, in one list.
#pragma once

#include <span>

#include "core/kernel.hpp"

namespace convoy {

/// All kernels of this build, in the order in which ties are broken: the more special first.
std::span<const Kernel* const> kernel_table();

/// The kernel of that name on that kind of device; null if there is none.
const Kernel* find_kernel(std::string_view name, DeviceKind device);

}  // namespace convoy
