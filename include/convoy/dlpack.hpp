// DLPack in and out: tensors shared with PyTorch, NumPy, JAX and others without a copy.
//
// The C structures are DLPack's own (github.com/dmlc/dlpack). They are only named here, so that
// dlpack.h, ATen's copy of it or none may be included before or after; who wants to look inside
// includes one of those.
#pragma once

#include <cstdint>
#include <memory>

#include "convoy/tensor.hpp"

struct DLManagedTensor;           // as in a Python capsule named "dltensor"
struct DLManagedTensorVersioned;  // DLPack 1.x, as in a capsule named "dltensor_versioned"

namespace convoy {

/// A view of somebody else's tensor: valid until its deleter is called. Up to five axes; float32,
/// float16, bfloat16, uint8 and int32; memory of the CPU (pinned too) or of CUDA.
/// Throws Error that says what was found, for anything else. What the structure points to is
/// believed: that shape and strides have ndim numbers, and that the memory is there.
///
///     DLPackOwner owner(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor")));
///     const TensorView x = from_dlpack(*owner);
CONVOY_API TensorView from_dlpack(const DLManagedTensor& tensor);

/// What a view is for. Of a tensor that is marked read only there are views to read alone: pass
/// them as inputs, never as outputs.
enum class DLPackAccess : std::uint8_t { read, read_and_write };

/// As above. Throws Error also where the major version is not 1, whose layout nobody knows (then
/// call the deleter, and ask for version 1), and for a tensor to read alone where `access` writes.
CONVOY_API TensorView from_dlpack(const DLManagedTensorVersioned& tensor,
                                  DLPackAccess access = DLPackAccess::read_and_write);

/// Calls the deleter, as the one who took a tensor over must.
struct DLPackDelete {
  CONVOY_API void operator()(DLManagedTensor* tensor) const;
  CONVOY_API void operator()(DLManagedTensorVersioned* tensor) const;
};
using DLPackOwner = std::unique_ptr<DLManagedTensor, DLPackDelete>;
using DLPackVersionedOwner = std::unique_ptr<DLManagedTensorVersioned, DLPackDelete>;

/// Gives the memory away: it lives until the receiver calls the deleter, and `tensor` is empty.
/// `release()` the result to hand it over.
CONVOY_API DLPackOwner to_dlpack(Tensor&& tensor);
/// The same in version 1.1.
CONVOY_API DLPackVersionedOwner to_dlpack_versioned(Tensor&& tensor);

/// Lends the memory: whoever owns it must keep it until the receiver calls the deleter. Throws
/// Error for a view whose rank or type is none.
CONVOY_API DLPackOwner to_dlpack(const TensorView& view);
/// The same in version 1.1; with DLPackAccess::read it is marked read only.
CONVOY_API DLPackVersionedOwner
to_dlpack_versioned(const TensorView& view, DLPackAccess access = DLPackAccess::read_and_write);

}  // namespace convoy
