#include "convoy/dlpack.hpp"

#include <fmt/core.h>

#include <utility>

#include "core/dlpack_layout.hpp"
#include "core/dtype.hpp"
#include "core/failure.hpp"
#include "core/size.hpp"

namespace convoy {
namespace {

// The structures as others know them and as we do.
dlpack::Managed* ours(DLManagedTensor* tensor) {
  return reinterpret_cast<dlpack::Managed*>(tensor);
}
dlpack::ManagedVersioned* ours(DLManagedTensorVersioned* tensor) {
  return reinterpret_cast<dlpack::ManagedVersioned*>(tensor);
}
DLManagedTensor* theirs(dlpack::Managed* managed) {
  return reinterpret_cast<DLManagedTensor*>(managed);
}
DLManagedTensorVersioned* theirs(dlpack::ManagedVersioned* managed) {
  return reinterpret_cast<DLManagedTensorVersioned*>(managed);
}

DType dtype_of(const dlpack::DataType& type) {
  if (type.lanes == 1) {
    if (type.code == dlpack::floating && type.bits == 32) return DType::f32;
    if (type.code == dlpack::floating && type.bits == 16) return DType::f16;
    if (type.code == dlpack::bfloat && type.bits == 16) return DType::bf16;
    if (type.code == dlpack::unsigned_integer && type.bits == 8) return DType::u8;
    if (type.code == dlpack::signed_integer && type.bits == 32) return DType::i32;
  }
  throw InvalidOperand(fmt::format(
      "DLPack tensor: the elements have type code {}, {} bits and {} lanes; expected float32, "
      "float16, bfloat16, uint8 or int32. Convert the tensor first.",
      static_cast<int>(type.code), static_cast<int>(type.bits), static_cast<int>(type.lanes)));
}

dlpack::TypeCode code_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
      return dlpack::floating;
    case DType::bf16:
      return dlpack::bfloat;
    case DType::u8:
      return dlpack::unsigned_integer;
    case DType::i32:
      return dlpack::signed_integer;
  }
  return dlpack::floating;
}

Device device_of(const dlpack::Device& device) {
  if (device.type == dlpack::cpu || device.type == dlpack::cuda_host) return {DeviceKind::cpu, 0};
  if ((device.type == dlpack::cuda || device.type == dlpack::cuda_managed) && device.number >= 0)
    return {DeviceKind::cuda, device.number};
  throw InvalidOperand(
      fmt::format("DLPack tensor: it is on device type {}, number {}; expected the CPU (1, or 3 "
                  "for pinned memory) or CUDA (2). Copy it to one of them first.",
                  device.type, device.number));
}

TensorView view_of(const dlpack::Array& array) {
  TensorView view;
  if (array.ndim < 0 || array.ndim > static_cast<int>(view.shape.size()) ||
      (array.ndim > 0 && !array.shape))
    throw InvalidOperand(fmt::format("DLPack tensor: {} axes, expected at most {} with their sizes",
                                     array.ndim, view.shape.size()));
  view.dtype = dtype_of(array.dtype);
  view.device = device_of(array.device);
  view.rank = array.ndim;
  Size elements = 1;
  for (std::size_t axis = static_cast<std::size_t>(view.rank); axis-- > 0;) {
    view.shape[axis] = array.shape[axis];
    view.stride[axis] = array.strides ? array.strides[axis] : elements.value();
    elements *= view.shape[axis];
    if (view.shape[axis] < 0 || !elements.fits())
      throw InvalidOperand(
          fmt::format("DLPack tensor: axis {} has {} elements; sizes must not be negative and "
                      "their product must be at most 2^60",
                      axis, array.shape[axis]));
  }
  if (!array.data && elements > 0)
    throw InvalidOperand(
        fmt::format("DLPack tensor: found {} elements but a null pointer, expected their memory",
                    elements.value()));
  view.data = static_cast<char*>(array.data) + (array.data ? array.byte_offset : 0);
  return view;
}

const dlpack::ManagedVersioned& of_version_1(const DLManagedTensorVersioned& tensor) {
  const dlpack::ManagedVersioned& managed = *ours(const_cast<DLManagedTensorVersioned*>(&tensor));
  if (managed.version.major != dlpack::version_major)
    throw InvalidOperand(fmt::format(
        "DLPack tensor: it has version {}.{}, expected {}.x. Ask its owner for that version.",
        managed.version.major, managed.version.minor, dlpack::version_major));
  return managed;
}

// What a structure of ours points to, in one allocation with it.
template <class Managed>
struct Lent {
  Managed managed{};
  Tensor owner;  // empty where the memory is only lent
  std::array<std::int64_t, 5> shape{}, stride{};
};

template <class Managed>
Managed* lend(const ConstTensorView& view, Tensor&& owner) {
  if (view.rank < 0 || view.rank > static_cast<int>(view.shape.size()) ||
      !facts_of(view.dtype).known)
    throw InvalidOperand(fmt::format("to_dlpack: {}, expected 0 to {} axes of a known type",
                                     describe(view), view.shape.size()));
  auto lent = std::make_unique<Lent<Managed>>();
  lent->owner = std::move(owner);
  lent->shape = view.shape;
  lent->stride = view.stride;
  lent->managed.array = dlpack::array_of(view, lent->shape.data(), lent->stride.data());
  lent->managed.context = lent.get();
  lent->managed.deleter = [](Managed* self) { delete static_cast<Lent<Managed>*>(self->context); };
  return &lent.release()->managed;
}

DLPackVersionedOwner lend_versioned(const ConstTensorView& view, Tensor&& owner,
                                    std::uint64_t flags) {
  auto* const managed = lend<dlpack::ManagedVersioned>(view, std::move(owner));
  managed->version = {dlpack::version_major, dlpack::version_minor};
  managed->flags = flags;
  return DLPackVersionedOwner(theirs(managed));
}

template <class Managed>
void call_deleter(Managed* managed) {
  if (managed && managed->deleter) managed->deleter(managed);
}

}  // namespace

dlpack::Array dlpack::array_of(const ConstTensorView& view, std::int64_t* shape,
                               std::int64_t* strides) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(view.dtype));
  // DLPack has one kind of pointer; inputs are marked as read only.
  return {.data = const_cast<void*>(view.data),
          .device = {view.device.kind == DeviceKind::cpu ? dlpack::cpu : dlpack::cuda,
                     view.device.index},
          .ndim = view.rank,
          .dtype = {code_of(view.dtype), bits, 1},
          .shape = shape,
          .strides = strides,
          .byte_offset = 0};
}

TensorView from_dlpack(const DLManagedTensor& tensor) try {
  return view_of(ours(const_cast<DLManagedTensor*>(&tensor))->array);
} catch (...) {
  rethrow_as_error();
}

TensorView from_dlpack(const DLManagedTensorVersioned& tensor) try {
  const dlpack::ManagedVersioned& managed = of_version_1(tensor);
  if ((managed.flags & dlpack::flag_read_only) != 0)
    throw InvalidOperand(
        "DLPack tensor: it is read only, expected a writable tensor. Copy it, or use it as an "
        "input: from_dlpack_read_only(tensor).");
  return view_of(managed.array);
} catch (...) {
  rethrow_as_error();
}

ConstTensorView from_dlpack_read_only(const DLManagedTensorVersioned& tensor) try {
  return view_of(of_version_1(tensor).array);
} catch (...) {
  rethrow_as_error();
}

void DLPackDelete::operator()(DLManagedTensor* tensor) const {
  call_deleter(ours(tensor));
}
void DLPackDelete::operator()(DLManagedTensorVersioned* tensor) const {
  call_deleter(ours(tensor));
}

DLPackOwner to_dlpack(Tensor&& tensor) try {
  const TensorView view = tensor.view();
  return DLPackOwner(theirs(lend<dlpack::Managed>(view, std::move(tensor))));
} catch (...) {
  rethrow_as_error();
}
DLPackOwner to_dlpack(const TensorView& view) try {
  return DLPackOwner(theirs(lend<dlpack::Managed>(view, Tensor())));
} catch (...) {
  rethrow_as_error();
}
DLPackVersionedOwner to_dlpack_versioned(Tensor&& tensor) try {
  const TensorView view = tensor.view();
  return lend_versioned(view, std::move(tensor), 0);
} catch (...) {
  rethrow_as_error();
}
DLPackVersionedOwner to_dlpack_versioned(const TensorView& view) try {
  return lend_versioned(view, Tensor(), 0);
} catch (...) {
  rethrow_as_error();
}
DLPackVersionedOwner to_dlpack_read_only(const ConstTensorView& view) try {
  return lend_versioned(view, Tensor(), dlpack::flag_read_only);
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
