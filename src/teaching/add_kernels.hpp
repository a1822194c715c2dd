// The seam between the library and the kernels to learn from and to compare with: the ladder, a
// series of kernels with one optimisation more each, and cutlass_pooled. They are a library of
// their own, convoy_teaching, so that a user's libconvoy does not carry their machine code.
#pragma once

namespace convoy::teaching {

/// Adds the teaching kernels to the kernel table; a build without CUDA has none. A program calls
/// this once, at the start of main. Throws Error where a plan was made before, or where they are in
/// the table already (add_kernels in plan/kernel_table.hpp).
void add_kernels();

}  // namespace convoy::teaching
