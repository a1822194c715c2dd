// Which axes of an array are what: Convoy's own [..., H, W, C], or PyTorch's names for the same
// memory.
#pragma once

#include "arrays.hpp"

namespace convoy::python {

/// How arrays that a plan is given name their axes.
enum class Axes : std::uint8_t {
  automatic,  // by shape and strides, refused where both would do
  nhwc,
  nchw,
};
/// "auto", "nhwc" or "nchw"; throws Error for anything else.
Axes axes_of(const std::string& text);

/// Height, width and channels that a channels-last stage expects.
struct Pixels {
  Index h = 0, w = 0, c = 0;
};

/// Turns the view of a channels_last array [..., C, H, W] into that of [..., H, W, C], the same
/// memory; true where it did. Raises InvalidOperand where the channels are not innermost, and where
/// nothing tells which of the two it is. Anything else is left to the plan's own checks.
/// has_axes: the caller can say Plan(..., axes=).
bool as_channels_last(Array& array, const char* name, Axes axes, const Pixels& expected,
                      bool has_axes = true);

}  // namespace convoy::python
