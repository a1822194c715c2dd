#include "convoy/dlpack.hpp"

#include <fmt/core.h>

#include <utility>

#include "core/size.hpp"

namespace convoy {
namespace {

DType dtype_of(const DLDataType& type) {
  if (type.lanes == 1) {
    if (type.code == kDLFloat && type.bits == 32) return DType::f32;
    if (type.code == kDLFloat && type.bits == 16) return DType::f16;
    if (type.code == kDLBfloat && type.bits == 16) return DType::bf16;
    if (type.code == kDLUInt && type.bits == 8) return DType::u8;
    if (type.code == kDLInt && type.bits == 32) return DType::i32;
  }
  throw Error(fmt::format(
      "DLPack tensor: its elements are code {}, {} bits, {} lanes; expected float32, "
      "float16, bfloat16, uint8 or int32. Convert it first.",
      static_cast<int>(type.code), static_cast<int>(type.bits), static_cast<int>(type.lanes)));
}

DLDataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::bf16:
      return {kDLBfloat, bits, 1};
    case DType::u8:
      return {kDLUInt, bits, 1};
    case DType::i32:
      return {kDLInt, bits, 1};
    default:
      return {kDLFloat, bits, 1};
  }
}

Device device_of(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return {DeviceKind::cpu, 0};
    case kDLCUDA:
    case kDLCUDAManaged:
      if (device.device_id >= 0) return {DeviceKind::cuda, device.device_id};
      break;
    default:
      break;
  }
  throw Error(
      fmt::format("DLPack tensor: it is on device type {}, number {}; expected the CPU (1, or 3 "
                  "for pinned memory) or CUDA (2). Copy it there first.",
                  static_cast<int>(device.device_type), device.device_id));
}

// What a DLManagedTensor of ours points to, in one allocation with it.
struct Lent {
  DLManagedTensor managed{};
  Tensor owner;  // empty where the memory is only lent
  std::array<std::int64_t, 5> shape{}, stride{};
};

DLPackOwner lend(const TensorView& view, Tensor&& owner) {
  if (view.rank < 0 || view.rank > static_cast<int>(view.shape.size()) || view.dtype > DType::i32)
    throw Error(fmt::format("to_dlpack: {}, expected 0 to {} axes of a known type", describe(view),
                            view.shape.size()));
  auto lent = std::make_unique<Lent>();
  lent->owner = std::move(owner);
  lent->shape = view.shape;
  lent->stride = view.stride;
  DLTensor& tensor = lent->managed.dl_tensor;
  tensor.data = view.data;
  tensor.device = {view.device.kind == DeviceKind::cpu ? kDLCPU : kDLCUDA, view.device.index};
  tensor.ndim = view.rank;
  tensor.dtype = type_of(view.dtype);
  tensor.shape = lent->shape.data();
  tensor.strides = lent->stride.data();
  tensor.byte_offset = 0;
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Lent*>(self->manager_ctx);
  };
  return DLPackOwner(&lent.release()->managed);
}

}  // namespace

TensorView from_dlpack(const DLManagedTensor& managed) {
  const DLTensor& tensor = managed.dl_tensor;
  TensorView view;
  if (tensor.ndim < 0 || tensor.ndim > static_cast<int>(view.shape.size()) ||
      (tensor.ndim > 0 && !tensor.shape))
    throw Error(fmt::format("DLPack tensor: {} axes, expected at most {} with their sizes",
                            tensor.ndim, view.shape.size()));
  view.dtype = dtype_of(tensor.dtype);
  view.device = device_of(tensor.device);
  view.rank = tensor.ndim;
  Size elements = 1;
  for (std::size_t axis = static_cast<std::size_t>(view.rank); axis-- > 0;) {
    view.shape[axis] = tensor.shape[axis];
    view.stride[axis] = tensor.strides ? tensor.strides[axis] : elements.value();
    elements *= view.shape[axis];
    if (view.shape[axis] < 0 || !elements.fits())
      throw Error(
          fmt::format("DLPack tensor: axis {} has {} elements; sizes must not be negative and "
                      "their product must be at most 2^60",
                      axis, tensor.shape[axis]));
  }
  if (!tensor.data && elements > 0)
    throw Error(fmt::format("DLPack tensor: {} elements but no memory", elements.value()));
  view.data = static_cast<char*>(tensor.data) + (tensor.data ? tensor.byte_offset : 0);
  return view;
}

DLPackOwner to_dlpack(Tensor&& tensor) {
  const TensorView view = tensor.view();
  return lend(view, std::move(tensor));
}
DLPackOwner to_dlpack(const TensorView& view) {
  return lend(view, Tensor());
}

}  // namespace convoy
