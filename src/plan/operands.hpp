// Checks what a caller hands to Plan::run and turns it into what a kernel takes.
#pragma once

#include "convoy/plan.hpp"
#include "core/kernel.hpp"

namespace convoy {

/// Fills `args` (all but workspace, threads and stream) from `operands`. A failing status names the
/// operand, what was found and what was expected. Allocates only to write that message.
Status bind_operands(const Stage& stage, const Shapes& shapes, Device device,
                     const Operands& operands, RunArgs& args);

/// How to walk a tensor of `view`'s shape: NHWC with any pixel stride, NCHW with any image stride.
/// steps: the outermost axis is T. An empty status and filled strides, or why not.
Status strides_of(std::string_view operand, const TensorView& view, Layout layout, bool steps,
                  Strides& strides);

}  // namespace convoy
