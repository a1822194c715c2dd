// The GPU families, one function each: it returns the family's only instance. What each computes is
// said at the top of its kernel's file; NAME_kernel.cpp ties it to the planner.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cuda {

const Kernel& depthwise();
const Kernel& general();

namespace sm90 {
const Kernel& halo();
const Kernel& first();
const Kernel& few();
const Kernel& halo_pool();    // pool_kernel.cpp
const Kernel& halo_padded();  // pad_kernel.cpp
const Kernel& halo_nchw();    // these four: layout_kernel.cpp
const Kernel& halo_padded_nchw();
const Kernel& first_nchw();
const Kernel& few_nchw();
}  // namespace sm90

}  // namespace convoy::cuda
