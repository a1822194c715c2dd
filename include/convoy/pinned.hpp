// Memory of the host that a GPU copies from and to by itself.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "convoy/tensor.hpp"

namespace convoy {

/// A dense tensor on the host, page-locked where `with` is a GPU: copies between the two then run
/// at the full rate and beside other work. Zero-filled; throws Error as Tensor does. Page-locking
/// takes milliseconds and memory that the system can't use otherwise: make it once, and reuse it.
///
///     const PinnedTensor images(DType::u8, {10000, 28, 28}, parse_device("cuda"));
///     network.run(images, {}, labels).or_throw();
class CONVOY_API PinnedTensor {
 public:
  PinnedTensor(DType dtype, const std::vector<Index>& shape, Device with);
  /// Moved from, a tensor is empty.
  PinnedTensor(PinnedTensor&& other) noexcept
      : ordinary_(std::move(other.ordinary_)),
        pinned_(std::move(other.pinned_)),
        view_(std::exchange(other.view_, {})) {}
  PinnedTensor& operator=(PinnedTensor&& other) noexcept {
    if (this == &other) return *this;
    ordinary_ = std::move(other.ordinary_);
    pinned_ = std::move(other.pinned_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: a tensor is a view of itself
  template <class T>
  T* data() const {
    return static_cast<T*>(view_.data);
  }

 private:
  struct Free {
    void operator()(void* memory) const noexcept;
  };
  Tensor ordinary_;  // where no GPU is asked for
  std::unique_ptr<void, Free> pinned_;
  TensorView view_;
};

}  // namespace convoy
