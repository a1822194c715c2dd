#include "cuda/refusals.hpp"

#include <fmt/core.h>

#include "math/activation.hpp"

namespace convoy::cuda {

Refusals& Refusals::hopper(const DeviceFacts& device) {
  return no(device.major != 9, fmt::format("compute capability {}.{}, the family needs 9.0 (wgmma)",
                                           device.major, device.minor));
}

Refusals& Refusals::halves() {
  no(stage_.dtype != DType::f16 && stage_.dtype != DType::bf16,
     fmt::format("the input is {}, the family takes f16 and bf16", to_text(stage_.dtype)));
  return no(stage_.output_dtype(true) != stage_.dtype,
            "the output type differs from the input type");
}

Refusals& Refusals::channels_in_eights() {
  return no(stage_.c % 8 != 0,
            fmt::format("C = {} is no multiple of 8 (TMA moves 16 bytes)", stage_.c));
}

Refusals& Refusals::filters_in_eights() {
  return no(stage_.k % 8 != 0,
            fmt::format("K = {} is no multiple of 8 (TMA moves 16 bytes)", stage_.k));
}

Refusals& Refusals::no_stride() {
  return no(stage_.stride != Extent(1), "a stride other than 1");
}
Refusals& Refusals::no_dilation() {
  return no(stage_.dil != Extent(1), "dilation is not supported");
}
Refusals& Refusals::one_group() {
  return no(stage_.groups != 1, "groups are not supported");
}
Refusals& Refusals::nhwc() {
  return no(stage_.layout != Layout::nhwc, "the layout is NCHW");
}
Refusals& Refusals::no_norm() {
  return no(stage_.norm, "norm is not supported");
}
Refusals& Refusals::no_keep() {
  return no(stage_.keep.any(), "second outputs are not supported");
}
Refusals& Refusals::no_neuron() {
  return no(stage_.act.is_neuron() || stage_.t != 1, "neurons are not supported");
}

Refusals& Refusals::pools_first() {
  return no(stage_.pool && !stage_.act.is_neuron() && !math::may_pool_first(stage_.act),
            "the activation decreases or makes NaN: pooling before it would change the result");
}

Refusals& Refusals::within(const Limits& limits) {
  return none_of(beyond(stage_, limits));
}

}  // namespace convoy::cuda
