// A run of more images than its kernel takes at once is made in parts: several runs of the kernel,
// each on a slice of the images.
//
// What a kernel counts in 32 bits bounds how many images it takes. That bound must not decide which
// kernel runs: an image's bits do not depend on the images beside it. So a kernel fits a chain if
// it runs one image of it, whatever n is (`refusals_of_an_image`), and what it refuses for n alone
// is cut (`part_of`). Kernels know nothing of this.
//
// Slices of x, y and of the second outputs are reached by their addresses. With several time steps
// a slice has a piece in each step, where kernels expect one dense tensor: such parts are copied to
// workspace and back, and are therefore small.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/kernel.hpp"

namespace convoy {

/// How a run of a chain is cut.
struct Parts {
  Index images = 0;     // of a part; the last one may have fewer
  Index count = 1;      // of the chain's n
  bool copied = false;  // through workspace
};

/// Why the kernel can't run one image of the chain; empty: it runs any n. (A kernel whose runs may
/// have any number of images, `KernelFacts::any_n`, is asked about the chain as it is.)
std::vector<std::string> refusals_of_an_image(const Kernel& kernel, const Chain& chain,
                                              const Machine& machine);

/// The cut of a chain that the kernel runs. Parts are of one size, in sixteens if they can be: then
/// each begins on 16 bytes where x does.
Parts part_of(const Kernel& kernel, const Chain& chain, const Machine& machine);

/// The tiles of a part, in the kernel's order, and the cost of a run of all parts.
std::vector<Tile> tiles_of_part(const Kernel& kernel, const Chain& chain, const Parts& parts,
                                const Machine& machine);
Cost cost_in_parts(const Kernel& kernel, const Chain& chain, const Parts& parts, const Tile& tile,
                   const Machine& machine);
Cost cost_in_parts(const Kernel& kernel, const Chain& chain, const Tile& tile,
                   const Machine& machine);

/// What runs the chain, of any n up to the chain's, in one part or in several.
std::unique_ptr<Prepared> prepare_in_parts(const Kernel& kernel, const Chain& chain,
                                           const Tile& tile, const Machine& machine);

}  // namespace convoy
