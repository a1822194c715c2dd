/// @file
/// Page-locked host memory, which a GPU copies from and to by itself. docs/start/gpu.md tells when
/// it pays off.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "convoy/tensor.hpp"

namespace convoy {

/// A contiguous tensor in host memory that is page-locked for a GPU. Copies between the two run at
/// the full rate and in parallel with other work. Page-locking takes milliseconds, and the system
/// can't use the memory otherwise: make the tensor once and reuse it.
///
///     PinnedTensor images(DType::u8, {10000, 28, 28}, parse_device("cuda"));
///     std::copy(pixels.begin(), pixels.end(), images.data<std::uint8_t>());
///     network.run(images, {}, labels).or_throw();
class CONVOY_API PinnedTensor {
 public:
  /// A tensor filled with zeros, page-locked for the GPU `with`. With the CPU it is ordinary
  /// memory. Throws Error if a size is negative or the product too large, and if this machine lacks
  /// the GPU or the memory.
  PinnedTensor(DType dtype, const std::vector<Index>& shape, Device with);
  /// Takes the memory over; `other` is empty afterwards.
  PinnedTensor(PinnedTensor&& other) noexcept
      : ordinary_(std::move(other.ordinary_)),
        pinned_(std::move(other.pinned_)),
        view_(std::exchange(other.view_, {})) {}
  /// Frees the memory, then takes that of `other` over, which is empty afterwards.
  PinnedTensor& operator=(PinnedTensor&& other) noexcept {
    if (this == &other) return *this;
    ordinary_ = std::move(other.ordinary_);
    pinned_ = std::move(other.pinned_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }

  /// The view of all elements, on the host. It is valid as long as the tensor is neither moved,
  /// assigned to nor destroyed.
  TensorView view() { return view_; }
  /// The view of a const PinnedTensor, whose elements can only be read.
  ConstTensorView view() const { return view_; }
  /// view(), so that a PinnedTensor can be passed as an output.
  operator TensorView() { return view_; }  // NOLINT: a tensor is a view of itself
  /// view(), so that a PinnedTensor, const or not, can be passed as an input.
  operator ConstTensorView() const { return view_; }  // NOLINT: a tensor is a view of itself
  /// The first element. The type is not checked.
  template <class T>
  T* data() {
    return static_cast<T*>(view_.data);
  }
  /// The first element of a const PinnedTensor. The type is not checked.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(view_.data);
  }

 private:
  struct Free {
    void operator()(void* memory) const noexcept;
  };
  Tensor ordinary_;  // if `with` is the CPU
  std::unique_ptr<void, Free> pinned_;
  TensorView view_;
};

}  // namespace convoy
