// The CPU families, one function each: it returns the family's only instance. What each computes is
// said at the top of its own file, which has the same name.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cpu {

const Kernel& winograd4();
const Kernel& winograd2();
const Kernel& direct();
const Kernel& first();
const Kernel& first_winograd2();
const Kernel& tap_pairs();
const Kernel& few_filters();
const Kernel& depthwise();
const Kernel& grouped();
const Kernel& general();
const Kernel& spike_chain();  // spike/: layers that hand each other bits

}  // namespace convoy::cpu
