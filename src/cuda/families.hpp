// The GPU families, one function each: it returns the family's only instance. What each computes is
// said at the top of its kernel's file; NAME_kernel.cpp ties it to the planner. Those that run
// inside another (src/cuda/wrap) have a line in src/plan/kernel_table.cpp.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cuda {

const Kernel& depthwise();
const Kernel& fma();
const Kernel& few_filters();  // up to eight filters, f32
const Kernel& general();

namespace sm80 {
const Kernel& spike_resident();             // a spiking network in one launch
const Kernel& spike_resident_warpgroups();  // a known one by wgmma
const Kernel& window();                     // any stage without a neuron, by mma.sync
}  // namespace sm80

namespace sm90 {
const Kernel& halo();
const Kernel& halo_sums();  // halo with f32 sums as y, inside wrappers only
const Kernel& first();
const Kernel& few();
const Kernel& pair();  // two stages in one launch
}  // namespace sm90

}  // namespace convoy::cuda
