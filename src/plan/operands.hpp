// Checks what a caller hands to Plan::run and turns it into what a kernel takes.
#pragma once

#include "convoy/plan.hpp"
#include "core/kernel.hpp"
#include "core/size.hpp"

namespace convoy {

/// Fills `args` (all but workspace, threads and stream) from `operands`. A failing status names the
/// operand, what was found and what was expected. Allocates only to write that message. args.n may
/// be 0: then there is nothing to run, and the strides are not filled.
Status bind_operands(const Stage& stage, const Shapes& shapes, Device device,
                     const Operands& operands, RunArgs& args);

/// Whether a caller's workspace of so many bytes lies apart from every operand, or a status that
/// names the one that it overlaps. Views were bound before.
Status check_workspace(const Operands& operands, std::size_t bytes);

/// Whether the view's address is a multiple of its element's size, or a status that says not.
Status check_aligned(std::string_view what, const ConstTensorView& view);

/// Bytes from the first to just after the last element of a view with strides of at least 0.
Size extent_bytes(const TensorDescriptor& view);

/// Throws Error where the strides of a view lead, in either direction, beyond what memory can be.
void check_reach(std::string_view what, const ConstTensorView& view);

}  // namespace convoy
