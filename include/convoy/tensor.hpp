/// @file
/// Tensors: `Tensor` owns its memory. `ConstTensorView` (an input) and `TensorView` (an output) are
/// pointers with a shape that own nothing.
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

/// The kind of a device.
enum class DeviceKind : std::uint8_t {
  cpu,  ///< the host
  cuda  ///< an NVIDIA GPU
};
/// A device: its kind and its number. Text form: "cpu", "cuda", "cuda:1".
struct Device {
  DeviceKind kind = DeviceKind::cpu;  ///< CPU or GPU
  int index = 0;                      ///< the GPU's number in CUDA's order; 0 for the CPU
  /// Whether kind and number are equal.
  bool operator==(const Device&) const = default;
};
/// Parses "cpu", "cuda" or "cuda:<number>". Throws Error for any other text. It does not check
/// whether this machine has the device.
CONVOY_API Device parse_device(std::string_view text);
/// The text form of a device; "cuda" for number 0.
CONVOY_API std::string to_text(Device device);

/// Type, shape, strides and device of a tensor: a view without its pointer. The two kinds of views,
/// TensorView and ConstTensorView, begin with it.
struct TensorDescriptor {
  DType dtype = DType::f32;       ///< type of the elements
  int rank = 0;                   ///< number of axes, 0 to 5
  std::array<Index, 5> shape{};   ///< sizes of the axes, outermost first; `rank` of them count
  std::array<Index, 5> stride{};  ///< distances along the axes, in elements
  Device device{};                ///< the memory's device

  /// No axes.
  TensorDescriptor() = default;
  /// The descriptor of a contiguous tensor. Throws Error if there are more than five axes, if a
  /// size is negative and if the product of the sizes is above 2^60.
  CONVOY_API TensorDescriptor(DType dtype, const std::vector<Index>& shape, Device device = {});
  /// The product of the sizes. It is 0 for a rank outside 0 to 5, and more than 2^60 if a size is
  /// negative or the product too large.
  CONVOY_API Index elements() const;
  /// Whether the elements follow each other without gaps in C order. Strides of axes of size 1 do
  /// not count.
  CONVOY_API bool contiguous() const;

  /// The DType of a C++ type: float, std::uint8_t or std::int32_t. No other type compiles; views of
  /// f16 and bf16 are made from a pointer to void and a DType.
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

/// A tensor in memory of yours that a function reads: an input. It owns nothing and may be copied
/// freely. A Tensor and a TensorView convert to it.
///
/// You may fill in the fields by hand. Every function that takes a view checks its rank, sizes,
/// strides and data before it reads through the pointer. It can't check that the memory exists: the
/// caller keeps it alive and large enough.
struct ConstTensorView : TensorDescriptor {
  const void* data = nullptr;  ///< the first element; null: no tensor

  /// No tensor.
  ConstTensorView() = default;
  /// A contiguous view. Throws Error as the constructor of TensorDescriptor.
  CONVOY_API ConstTensorView(const void* data, DType dtype, std::initializer_list<Index> shape,
                             Device device = {});
  /// A contiguous view with the shape in a vector. Throws Error as the constructor of
  /// TensorDescriptor.
  CONVOY_API ConstTensorView(const void* data, DType dtype, const std::vector<Index>& shape,
                             Device device = {});
  /// A contiguous view of host memory, with the type taken from the pointer: float, std::uint8_t or
  /// std::int32_t.
  ///
  ///     ConstTensorView::of(vector.data(), {n, h, w, c})
  template <class T>
  static ConstTensorView of(const T* data, std::initializer_list<Index> shape) {
    return ConstTensorView(data, dtype_of<T>(), shape);
  }
  /// A contiguous view of host memory with the shape in a vector.
  ///
  ///     ConstTensorView::of(vector.data(), x_shape(stage))
  template <class T>
  static ConstTensorView of(const T* data, const std::vector<Index>& shape) {
    return ConstTensorView(data, dtype_of<T>(), shape);
  }
  /// Whether there is a tensor: `data` is not null.
  explicit operator bool() const { return data != nullptr; }
  /// A slice of the last axis, for example of the channels of an NHWC tensor: channels [first,
  /// first + count) of the same pixels, with the same strides. Throws Error if the view does not
  /// have these channels.
  CONVOY_API ConstTensorView channels(Index first, Index count) const;
};

/// A tensor in memory of yours that a function may write: an output. As an input it converts to a
/// ConstTensorView; everything said there holds here.
///
/// Like a pointer, a view gives access to memory that it does not own: a `const TensorView` can't
/// be pointed elsewhere, but its elements can be written.
struct TensorView : TensorDescriptor {
  void* data = nullptr;  ///< the first element; null: no tensor

  /// No tensor.
  TensorView() = default;
  /// A contiguous view. Throws Error as the constructor of TensorDescriptor.
  CONVOY_API TensorView(void* data, DType dtype, std::initializer_list<Index> shape,
                        Device device = {});
  /// A contiguous view with the shape in a vector. Throws Error as the constructor of
  /// TensorDescriptor.
  CONVOY_API TensorView(void* data, DType dtype, const std::vector<Index>& shape,
                        Device device = {});
  /// A contiguous view of host memory, with the type taken from the pointer: float, std::uint8_t or
  /// std::int32_t.
  ///
  ///     TensorView::of(vector.data(), {n, h, w, c})
  template <class T>
  static TensorView of(T* data, std::initializer_list<Index> shape) {
    static_assert(!std::is_const_v<T>, "const memory is for inputs: use ConstTensorView::of");
    return TensorView(data, dtype_of<T>(), shape);
  }
  /// A contiguous view of host memory with the shape in a vector.
  ///
  ///     TensorView::of(vector.data(), y_shape(stage))
  template <class T>
  static TensorView of(T* data, const std::vector<Index>& shape) {
    static_assert(!std::is_const_v<T>, "const memory is for inputs: use ConstTensorView::of");
    return TensorView(data, dtype_of<T>(), shape);
  }
  /// Whether there is a tensor: `data` is not null.
  explicit operator bool() const { return data != nullptr; }
  /// This view as an input.
  operator ConstTensorView() const {  // NOLINT: an output may be read
    ConstTensorView input;
    static_cast<TensorDescriptor&>(input) = *this;
    input.data = data;
    return input;
  }
  /// A slice of the last axis; see ConstTensorView::channels.
  CONVOY_API TensorView channels(Index first, Index count) const;
};

/// A view in words, for messages: "f32[4,32,32,64] on cpu, contiguous".
CONVOY_API std::string describe(const ConstTensorView& view);

/// A stream of GPU work. On the CPU it is ignored. docs/start/gpu.md explains streams.
struct Stream {
  void* handle = nullptr;  ///< a cudaStream_t; null: CUDA's legacy default stream
};

/// A tensor that owns its memory: aligned to 64 bytes on the host and 256 bytes on a GPU. A Tensor
/// can be moved; copies are made by clone() and to() only. A Tensor that was moved from, also by
/// to_dlpack(), equals an empty one.
class CONVOY_API Tensor {
 public:
  /// No memory; an empty view.
  Tensor() = default;
  /// A contiguous tensor filled with zeros. Throws Error if a size is negative, if the product of
  /// the sizes is too large, and if this machine lacks the device or the memory.
  Tensor(DType dtype, const std::vector<Index>& shape, Device device = {});
  /// Takes the memory over; `other` is empty afterwards.
  Tensor(Tensor&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, {})) {}
  /// Frees the memory, then takes that of `other` over, which is empty afterwards.
  Tensor& operator=(Tensor&& other) noexcept {
    memory_ = std::move(other.memory_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }
  /// Frees the memory.
  ~Tensor() = default;
  /// A copy on the same device. Throws Error as to().
  Tensor clone() const;
  /// A copy on `device`. Throws Error if this machine lacks the device or the memory.
  Tensor to(Device device) const;

  /// The view of all elements, valid as long as the Tensor is neither moved, assigned to nor
  /// destroyed.
  TensorView view() { return view_; }
  /// The view of a const Tensor, whose elements can only be read.
  ConstTensorView view() const { return view_; }
  /// view(), so that a Tensor can be passed as an output.
  operator TensorView() { return view_; }  // NOLINT: a tensor is a view of itself
  /// view(), so that a Tensor, const or not, can be passed as an input.
  operator ConstTensorView() const { return view_; }  // NOLINT: a tensor is a view of itself
  /// The first element. The type is not checked.
  template <class T>
  T* data() {
    return static_cast<T*>(view_.data);
  }
  /// The first element of a const Tensor. The type is not checked.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(view_.data);
  }
  /// The number of elements.
  Index elements() const { return view_.elements(); }
  /// The number of bytes of all elements.
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(view_.dtype); }

 private:
  struct Free {
    Device device;
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> memory_;
  TensorView view_;
};

/// Copies elements between two views of the same type and shape, on any two devices. Their memory
/// must not overlap. Each view is contiguous or a slice of channels (one distance between all
/// pixels).
///
/// Between GPUs, and on one GPU, the copy is enqueued on the stream; between GPUs, Stream{} is the
/// default stream of the GPU that is written. If one view is on the host, the copy waits for all
/// earlier work of the stream and is complete on return. Throws Error if types, shapes or strides
/// do not fit, and if the GPU reports a failure.
///
///     copy_tensor(y, wide.view().channels(64, 32));  // into a concatenation
CONVOY_API void copy_tensor(const ConstTensorView& from, const TensorView& to, Stream stream = {});

/// The shape of x: [N,H,W,C], or [N,C,H,W] with Layout::nchw. A neuron without `hold` adds a
/// leading axis T.
///
///     Tensor x(stage.dtype, x_shape(stage));
CONVOY_API std::vector<Index> x_shape(const Stage& stage);
/// The shape of the filters: [K,R,S,C/groups].
CONVOY_API std::vector<Index> w_shape(const Stage& stage);
/// The shape of y and of Operands::idx: [N,P',Q',K], or [N,K,P',Q'] with Layout::nchw. A neuron
/// adds a leading axis T. Throws Error if the stage is illegal.
CONVOY_API std::vector<Index> y_shape(const Stage& stage);
/// The shape of Operands::pre and Operands::act: [N,P,Q,K], also with Layout::nchw. A neuron adds a
/// leading axis T. Throws Error if the stage is illegal.
CONVOY_API std::vector<Index> pre_shape(const Stage& stage);
/// The shape of a neuron's membranes, which are f32: [N,P,Q,K], without T. Throws Error if the
/// stage is illegal.
CONVOY_API std::vector<Index> membrane_shape(const Stage& stage);

}  // namespace convoy
