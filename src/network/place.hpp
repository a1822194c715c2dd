// Where values lie: concatenations and slices as views of one buffer, as far as the kernels on both
// sides take the distance between pixels and the addresses that this gives; else by copies.
#pragma once

#include "network/program.hpp"

namespace convoy::network {

/// Fills `places` and `buffers` of a program that has all its steps, and takes out the copies that
/// are not needed. A kernel is never chosen by where its operands lie, so that no bit depends on
/// it.
void place_values(Program& program);

/// What a kernel asks of an operand that is a slice of a wider tensor: address and distance from
/// pixel to pixel in multiples of so many bytes; 0: it takes no slice.
Index slice_unit(const Kernel& kernel);

}  // namespace convoy::network
