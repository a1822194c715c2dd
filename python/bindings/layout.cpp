#include "layout.hpp"

#include <fmt/core.h>

#include "errors.hpp"

namespace convoy::python {

Axes axes_of(const std::string& text) {
  if (text == "auto") return Axes::automatic;
  if (text == "nhwc") return Axes::nhwc;
  if (text == "nchw") return Axes::nchw;
  throw Error(fmt::format("axes: '{}', expected 'auto', 'nhwc' or 'nchw'", text));
}

bool as_channels_last(Array& array, const char* name, Axes axes, const Pixels& expected,
                      bool has_axes) {
  TensorView& view = array.view;
  if (axes == Axes::nhwc || view.rank < 4) return false;
  const auto first = static_cast<std::size_t>(view.rank - 3);
  Index* const shape = &view.shape.at(first);
  Index* const stride = &view.stride.at(first);
  const bool fits_nhwc = shape[0] == expected.h && shape[1] == expected.w && shape[2] == expected.c;
  const bool fits_nchw = shape[0] == expected.c && shape[1] == expected.h && shape[2] == expected.w;
  if (axes == Axes::automatic) {
    if (!fits_nchw) return false;
    if (fits_nhwc) {  // C = H = W: the strides tell
      const bool last_is_dense = shape[2] == 1 || stride[2] == 1;
      const bool first_is_dense = shape[0] == 1 || stride[0] == 1;
      if (last_is_dense && first_is_dense) return false;  // one value a plane
      if (last_is_dense && array.type->maker == Maker::torch)
        raise(StatusCode::invalid_operand,
              has_axes ? fmt::format("{}: {}, which may be [N,H,W,C] or [N,C,H,W]. Choose one: "
                                     "Plan(..., axes=\"nhwc\"), or axes=\"nchw\" and "
                                     "{}.to(memory_format=torch.channels_last).",
                                     name, describe(view), name)
                       : fmt::format("{0}: {1}, which may be [N,H,W,C] or [N,C,H,W]. If it is "
                                     "[N,C,H,W], pass {0}.to(memory_format=torch.channels_last); "
                                     "if it is [N,H,W,C], pass {0}.permute(0, 3, 1, 2).",
                                     name, describe(view)));
      if (!first_is_dense) return false;
    }
  } else if (!fits_nchw) {
    raise(StatusCode::invalid_operand,
          fmt::format("{}: {}, expected [...,{},{},{}] (C, H, W), as axes=\"nchw\" says", name,
                      describe(view), expected.c, expected.h, expected.w));
  }
  if (shape[0] != 1 && stride[0] != 1 && view.elements() > 0)
    raise(StatusCode::invalid_operand,
          fmt::format("{0}: {1}, with channels first in memory; expected channels last. Pass "
                      "{0}.to(memory_format=torch.channels_last), or "
                      "numpy.ascontiguousarray({0}.transpose(0, 2, 3, 1)), once{2}.",
                      name, describe(view), has_axes ? "; or give the stage the option nchw" : ""));
  const Index rows = stride[1], columns = stride[2];
  shape[0] = expected.h, shape[1] = expected.w, shape[2] = expected.c;
  stride[0] = rows, stride[1] = columns, stride[2] = 1;
  return true;
}

}  // namespace convoy::python
