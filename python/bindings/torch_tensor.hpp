// What PyTorch knows of a tensor and DLPack does not carry: its negative bit, how large its storage
// is, and what autograd has to be told of a write.
#pragma once

#include "arrays.hpp"

namespace convoy::python {

/// Raises InvalidOperand where the tensor's numbers are not in the memory of its view, and for one
/// to write to where PyTorch's own operators would not take it as `out`.
void check_tensor(nanobind::handle tensor, const TensorView& view, const char* name, Access access);

/// Moves the tensor's version counter, as an operator that writes in place does.
void count_write(nanobind::handle tensor);

/// What convoy.torch asks of tensors at each call: _is_plain, _places.
void define_torch(nanobind::module_& module);

}  // namespace convoy::python
