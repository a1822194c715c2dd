// DLPack in and out: tensors shared with PyTorch, NumPy, JAX and others without a copy.
//
// The C structures are DLPack's own (github.com/dmlc/dlpack, unversioned form, as in a Python
// capsule named "dltensor"). Where dlpack.h is installed they come from there, else they are
// declared here.
#pragma once

#include <cstdint>
#include <memory>

#include "convoy/tensor.hpp"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#else
extern "C" {
typedef enum : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLCUDAManaged = 13
} DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  std::int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U } DLDataTypeCode;
typedef struct {
  std::uint8_t code, bits;
  std::uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous
  std::uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
}
#endif

namespace convoy {

/// A view of somebody else's tensor: valid until its deleter is called. Up to five axes; float32,
/// float16, bfloat16, uint8 and int32; memory of the CPU (pinned too) or of CUDA.
/// Throws Error that says what was found, for anything else. What the structure points to is
/// believed: that shape and strides have ndim numbers, and that the memory is there.
CONVOY_API TensorView from_dlpack(const DLManagedTensor& tensor);

/// Calls the deleter, as the one who took a tensor over must.
struct DLPackDelete {
  void operator()(DLManagedTensor* tensor) const {
    if (tensor && tensor->deleter) tensor->deleter(tensor);
  }
};
using DLPackOwner = std::unique_ptr<DLManagedTensor, DLPackDelete>;

/// Gives the memory away: it lives until the receiver calls the deleter, and `tensor` is empty.
/// `release()` the result to hand it over.
CONVOY_API DLPackOwner to_dlpack(Tensor&& tensor);

/// Lends the memory: whoever owns it must keep it until the receiver calls the deleter. Throws
/// Error for a view whose rank or type is none.
CONVOY_API DLPackOwner to_dlpack(const TensorView& view);

}  // namespace convoy
