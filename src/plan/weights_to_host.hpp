// Weights on a GPU, in whatever order their view has them, as a dense tensor on the host.
#pragma once

#include <cstddef>
#include <functional>

#include "convoy/tensor.hpp"

namespace convoy {

/// A dense copy on the host. `copy` brings bytes of the view's memory to the host, complete on
/// return; the pieces lie between the view's first and last element. Strides may be any, negative
/// or 0 too.
Tensor copy_to_host(const ConstTensorView& view,
                    const std::function<void(const void* from, void* to, std::size_t bytes)>& copy);

/// Of a view on a GPU: behind the work that the stream holds.
Tensor copy_to_host(const ConstTensorView& view, Stream stream);

}  // namespace convoy
