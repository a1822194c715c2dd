/// @file
/// DLPack: tensors shared with PyTorch, NumPy, JAX and others without a copy.
///
/// The C structures are those of DLPack (github.com/dmlc/dlpack). This header only declares them,
/// so that you may include dlpack.h, ATen's copy of it, or neither, before or after it.
#pragma once

#include <cstdint>
#include <memory>

#include "convoy/tensor.hpp"

struct DLManagedTensor;           // DLPack 0.x; in a Python capsule named "dltensor"
struct DLManagedTensorVersioned;  // DLPack 1.x; in a Python capsule named "dltensor_versioned"

namespace convoy {

/// A view of a DLPack tensor, valid until the tensor's deleter is called.
///
/// Takes tensors of at most five axes, of type float32, float16, bfloat16, uint8 or int32, in
/// memory of the CPU (also pinned) or of CUDA (also managed). Throws Error for any other tensor. It
/// can't check that shape and strides have ndim numbers and that the memory exists.
///
///     DLPackOwner owner(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
///     const TensorView x = from_dlpack(*owner);
CONVOY_API TensorView from_dlpack(const DLManagedTensor& tensor);

/// A view of a DLPack tensor of version 1.x, valid until the tensor's deleter is called.
///
/// Takes the same tensors as from_dlpack() of a DLManagedTensor. Also throws Error if the major
/// version is not 1 (call the deleter and ask the producer for version 1), and if the tensor is
/// marked read only: then use from_dlpack_read_only().
CONVOY_API TensorView from_dlpack(const DLManagedTensorVersioned& tensor);
/// The view of a DLPack tensor of version 1.x as an input, whether the tensor is marked read only
/// or not. Throws Error for the other reasons of from_dlpack().
CONVOY_API ConstTensorView from_dlpack_read_only(const DLManagedTensorVersioned& tensor);

/// Calls a DLPack tensor's deleter, which is the duty of its receiver. Null is allowed.
struct DLPackDelete {
  /// Calls the deleter of a tensor of version 0.x.
  CONVOY_API void operator()(DLManagedTensor* tensor) const;
  /// Calls the deleter of a tensor of version 1.x.
  CONVOY_API void operator()(DLManagedTensorVersioned* tensor) const;
};
/// Owns a DLPack tensor of version 0.x.
using DLPackOwner = std::unique_ptr<DLManagedTensor, DLPackDelete>;
/// Owns a DLPack tensor of version 1.x.
using DLPackVersionedOwner = std::unique_ptr<DLManagedTensorVersioned, DLPackDelete>;

/// Gives the memory of a tensor away: it is freed when the receiver calls the deleter. `tensor` is
/// empty afterwards. Call release() on the result to hand it over. Throws Error if memory runs out.
CONVOY_API DLPackOwner to_dlpack(Tensor&& tensor);
/// to_dlpack() in version 1.1 of DLPack.
CONVOY_API DLPackVersionedOwner to_dlpack_versioned(Tensor&& tensor);

/// Lends the memory of a view: its owner must keep it until the receiver calls the deleter. Throws
/// Error for a view with an illegal rank or type, and if memory runs out.
CONVOY_API DLPackOwner to_dlpack(const TensorView& view);
/// to_dlpack() in version 1.1 of DLPack.
CONVOY_API DLPackVersionedOwner to_dlpack_versioned(const TensorView& view);
/// Lends the memory of an input in version 1.1 of DLPack: the tensor is marked read only. Version
/// 0.x has no such mark.
CONVOY_API DLPackVersionedOwner to_dlpack_read_only(const ConstTensorView& view);

}  // namespace convoy
