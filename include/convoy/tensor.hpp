// Tensors: views into memory that somebody else owns, and an owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"

namespace convoy {

enum class DeviceKind : std::uint8_t { cpu, cuda };
/// A device by kind and number. Text form: "cpu", "cuda", "cuda:1". The CPU's number is 0.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
/// parse_device("cuda:1"); throws Error for any other text. Whether it is here is not asked.
CONVOY_API Device parse_device(std::string_view text);
CONVOY_API std::string to_text(Device device);  // "cuda" for cuda:0

/// A pointer with a shape: owns nothing, copies freely. Up to five axes, outermost first;
/// strides in elements. The fields may be filled in by hand: what takes a view checks them (a rank
/// outside 0 to 5, sizes below 0, strides that overflow, no data) before it reads through them.
/// What nobody can check is whether the memory is there.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<Index, 5> shape{};
  std::array<Index, 5> stride{};
  Device device{};

  TensorView() = default;
  /// Contiguous.
  CONVOY_API TensorView(void* data, DType dtype, std::initializer_list<Index> shape,
                        Device device = {});
  CONVOY_API TensorView(void* data, DType dtype, const std::vector<Index>& shape,
                        Device device = {});
  /// Typed convenience for host data: TensorView::of(vector.data(), {n, h, w, c}).
  template <class T>
  static TensorView of(T* data, std::initializer_list<Index> shape) {
    return TensorView(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>(),
                      shape);
  }
  explicit operator bool() const { return data != nullptr; }
  /// The product of the sizes; 0 for a rank outside 0 to 5, more than 2^60 where a size is below 0
  /// or the product too large.
  CONVOY_API Index elements() const;
  CONVOY_API bool contiguous() const;
  /// Channels [first, first+count) of an NHWC view: the same pixels, the same strides. Throws Error
  /// where it has no such channels.
  CONVOY_API TensorView channels(Index first, Index count) const;

  template <class T>
  static constexpr DType dtype_of() {
    if constexpr (std::is_same_v<T, float>)
      return DType::f32;
    else if constexpr (std::is_same_v<T, std::uint8_t>)
      return DType::u8;
    else if constexpr (std::is_same_v<T, std::int32_t>)
      return DType::i32;
    else
      static_assert(sizeof(T) == 0,
                    "float, uint8_t or int32_t; give f16 and bf16 as void* with a DType");
  }
};
CONVOY_API std::string describe(const TensorView& view);  // "f32[4,32,32,64] on cpu, contiguous"

/// An opaque stream handle: a cudaStream_t on a GPU, unused on the CPU.
struct Stream {
  void* handle = nullptr;
};

/// Owns its memory, 64-byte aligned on the host and 256-byte on a GPU; moves, does not copy
/// silently. Moved from, also by to_dlpack, it is as one that was made empty.
class CONVOY_API Tensor {
 public:
  Tensor() = default;
  /// Zero-filled; throws Error when a size is negative or overflows, when the device is not here or
  /// has not enough memory.
  Tensor(DType dtype, const std::vector<Index>& shape, Device device = {});
  Tensor(Tensor&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, {})) {}
  Tensor& operator=(Tensor&& other) noexcept {
    memory_ = std::move(other.memory_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }
  ~Tensor() = default;
  Tensor clone() const;            // on the same device
  Tensor to(Device device) const;  // a copy there

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: a tensor is a view of itself
  template <class T>
  T* data() const {
    return static_cast<T*>(view_.data);
  }
  Index elements() const { return view_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(view_.dtype); }

 private:
  struct Free {
    Device device;
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> memory_;
  TensorView view_;
};

/// Copies elements between views of the same type and shape on any two devices, whose memory does
/// not overlap. Each view is contiguous or a slice of channels (one distance between all pixels).
/// Between GPUs, or on one, the copy is enqueued on the stream; where the host takes part it is
/// complete on return, after all earlier work of the stream. Throws Error that says what differs.
///
///     copy_tensor(y, wide.view().channels(64, 32));  // into a concatenation
CONVOY_API void copy_tensor(const TensorView& from, const TensorView& to, Stream stream = {});

/// Shapes of a stage's tensors, outermost axis first: `Tensor x(stage.dtype, x_shape(stage))`.
/// y_shape, pre_shape and membrane_shape throw Error where the stage is illegal.
CONVOY_API std::vector<Index> x_shape(const Stage& stage);    // [T,]N,H,W,C, or NCHW
CONVOY_API std::vector<Index> w_shape(const Stage& stage);    // K,R,S,C/groups
CONVOY_API std::vector<Index> y_shape(const Stage& stage);    // [T,]N,P',Q',K, or NCHW; also idx
CONVOY_API std::vector<Index> pre_shape(const Stage& stage);  // [T,]N,P,Q,K; also act
CONVOY_API std::vector<Index> membrane_shape(const Stage& stage);  // N,P,Q,K, f32

}  // namespace convoy
