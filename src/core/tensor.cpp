#include "convoy/tensor.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/dtype.hpp"
#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/size.hpp"

namespace convoy {

Device parse_device(std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(':'));
  Device device;
  if (kind == "cuda") device.kind = DeviceKind::cuda;
  bool good = kind == "cpu" || kind == "cuda";
  if (good && kind.size() < text.size()) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kind.size() + 1, end, device.index);
    good = error == std::errc() && stop == end && device.index >= 0 &&
           (device.kind == DeviceKind::cuda || device.index == 0);
  }
  if (!good)
    throw Error(
        fmt::format("device \"{}\": expected cpu, cuda or cuda:<number>", text.substr(0, 64)));
  return device;
}

std::string to_text(Device device) {
  const std::string kind = device.kind == DeviceKind::cpu ? "cpu"
                           : device.kind == DeviceKind::cuda
                               ? "cuda"
                               : fmt::format("kind {}", static_cast<int>(device.kind));
  return device.index == 0 ? kind : fmt::format("{}:{}", kind, device.index);
}

namespace {

// What an axis multiplies the strides of those outside of it by. An empty axis leaves the others as
// large as they are: their strides must fit, too.
Size factor(Index size) {
  return size == 0 ? 1 : size;
}

bool rank_fits(const TensorDescriptor& view) {
  return view.rank >= 0 && view.rank <= static_cast<int>(view.shape.size());
}

Error too_large(const std::vector<Index>& shape) {
  return InvalidOperand(fmt::format(
      "a tensor of [{}]: sizes must not be negative and their product must fit in memory",
      fmt::join(shape, ",")));
}

}  // namespace

TensorDescriptor::TensorDescriptor(DType dtype_, const std::vector<Index>& shape_, Device device_)
    : dtype(dtype_), rank(static_cast<int>(shape_.size())), device(device_) {
  if (shape_.size() > shape.size())
    throw InvalidOperand(
        fmt::format("a tensor of {} axes, expected at most {}", shape_.size(), shape.size()));
  Size next = 1;
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    shape[axis] = shape_[axis];
    stride[axis] = next.value();
    next *= factor(shape_[axis]);
    if (!next.fits()) throw too_large(shape_);
  }
}

Index TensorDescriptor::elements() const {
  if (!rank_fits(*this)) return 0;
  Size count = 1;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) count *= shape[axis];
  return count.value();
}

bool TensorDescriptor::contiguous() const {
  if (!rank_fits(*this)) return false;
  if (std::find(shape.begin(), shape.begin() + rank, 0) != shape.begin() + rank) return true;
  Size next = 1;
  for (auto axis = static_cast<std::size_t>(rank); axis-- > 0;) {
    if (shape[axis] != 1 && stride[axis] != next.value()) return false;
    next *= shape[axis];
    if (!next.fits()) return false;
  }
  return true;
}

ConstTensorView::ConstTensorView(const void* data_, DType dtype_,
                                 std::initializer_list<Index> shape_, Device device_)
    : TensorDescriptor(dtype_, shape_, device_), data(data_) {}
ConstTensorView::ConstTensorView(const void* data_, DType dtype_, const std::vector<Index>& shape_,
                                 Device device_)
    : TensorDescriptor(dtype_, shape_, device_), data(data_) {}
TensorView::TensorView(void* data_, DType dtype_, std::initializer_list<Index> shape_,
                       Device device_)
    : TensorDescriptor(dtype_, shape_, device_), data(data_) {}
TensorView::TensorView(void* data_, DType dtype_, const std::vector<Index>& shape_, Device device_)
    : TensorDescriptor(dtype_, shape_, device_), data(data_) {}

namespace {

/// The slice of a view of either kind.
template <class View>
View channels_of(const View& view, Index first, Index count) {
  const auto last = static_cast<std::size_t>(view.rank) - 1;  // of ranks below 1: not read
  if (!rank_fits(view) || view.rank < 1 || first < 0 || count < 1 || first > view.shape[last] ||
      count > view.shape[last] - first)
    throw InvalidOperand(fmt::format(
        "{} channels from {} on of {}: out of range, expected channels inside the tensor", count,
        first, describe(view)));
  if (view.stride[last] < 0 || !(Size(first) * view.stride[last]).fits())
    throw InvalidOperand(fmt::format(
        "channels of {}: expected strides of at least 0 that fit in memory", describe(view)));
  View slice = view;
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, char, const char>;
  if (view.data)
    slice.data = static_cast<Byte*>(view.data) +
                 static_cast<std::size_t>(first * view.stride[last]) * size_of(view.dtype);
  slice.shape[last] = count;
  return slice;
}

}  // namespace

ConstTensorView ConstTensorView::channels(Index first, Index count) const {
  return channels_of(*this, first, count);
}
TensorView TensorView::channels(Index first, Index count) const {
  return channels_of(*this, first, count);
}

std::string describe(const ConstTensorView& view) {
  if (!rank_fits(view))
    return fmt::format("a view of rank {} (expected 0 to {})", view.rank, view.shape.size());
  const auto axes = [&](const std::array<Index, 5>& numbers) {
    return fmt::format("[{}]", fmt::join(numbers.begin(), numbers.begin() + view.rank, ","));
  };
  if (!view.data) return "no tensor";
  const std::string type = facts_of(view.dtype).known
                               ? std::string(to_text(view.dtype))
                               : fmt::format("type {}", static_cast<int>(view.dtype));
  return fmt::format("{}{} on {}, {}", type, axes(view.shape), to_text(view.device),
                     view.contiguous() ? "contiguous" : "strides " + axes(view.stride));
}

void Tensor::Free::operator()(void* p) const {
  if (device.kind == DeviceKind::cpu)
    std::free(p);
  else
    gpu::release(device, p);
}

Tensor::Tensor(DType dtype, const std::vector<Index>& shape, Device device) try {
  if (!facts_of(dtype).known)
    throw InvalidOperand(fmt::format("a tensor of type {}: expected f32, f16, bf16, u8 or i32",
                                     static_cast<int>(dtype)));
  if (device.kind != DeviceKind::cuda && !(device == Device{}))
    throw Error(
        fmt::format("a tensor on {}: expected cpu, cuda or cuda:<number>", to_text(device)));
  Size most = static_cast<Index>(size_of(dtype)), bytes = most;
  for (const Index size : shape) {
    most *= factor(size);
    bytes *= size;
  }
  if (!most.fits()) throw too_large(shape);
  const std::size_t rounded =
      std::max<std::size_t>(64, (static_cast<std::size_t>(bytes.value()) + 63) / 64 * 64);
  memory_.get_deleter().device = device;
  if (device.kind == DeviceKind::cpu) {
    memory_.reset(std::aligned_alloc(64, rounded));
    if (!memory_)
      throw NoMemory(fmt::format(
          "no memory for a tensor of [{}], {} bytes. Use a smaller n or smaller images.",
          fmt::join(shape, ","), bytes.value()));
    std::memset(memory_.get(), 0, rounded);
  } else {
    memory_.reset(
        gpu::allocate(device, rounded, fmt::format("a tensor of [{}]", fmt::join(shape, ","))));
  }
  view_ = TensorView(memory_.get(), dtype, shape, device);
} catch (...) {
  rethrow_as_error();
}

Tensor Tensor::to(Device device) const try {
  Tensor there(view_.dtype,
               std::vector<Index>(view_.shape.begin(), view_.shape.begin() + view_.rank), device);
  copy_tensor(view_, there);
  return there;
} catch (...) {
  rethrow_as_error();
}

Tensor Tensor::clone() const {
  return to(view_.device);
}

namespace {

// A view as rows of `row` elements, each `pitch` elements behind the last: a contiguous tensor is
// one row, a slice of channels has a row a pixel.
struct Rows {
  Index count = 1, row = 1, pitch = 1;
};
bool rows_of(const TensorDescriptor& view, Rows& rows) {
  if (!Size(view.elements()).fits()) return false;
  if (view.contiguous()) {
    rows.row = rows.pitch = view.elements();
    return true;
  }
  const auto last = static_cast<std::size_t>(view.rank - 1);
  if (view.shape[last] != 1 && view.stride[last] != 1) return false;
  rows.row = view.shape[last];
  Size pitch;  // of the innermost axis that has more than one element
  bool found = false;
  for (std::size_t axis = last; axis-- > 0;) {
    if (view.shape[axis] == 1) continue;
    if (!std::exchange(found, true))
      pitch = rows.pitch = view.stride[axis];
    else if (view.stride[axis] != pitch.value())
      return false;
    pitch *= view.shape[axis];
    rows.count *= view.shape[axis];
  }
  return rows.pitch >= rows.row && (pitch * static_cast<Index>(size_of(view.dtype))).fits();
}

}  // namespace

void copy_tensor(const ConstTensorView& from, const TensorView& to, Stream stream) try {
  const bool same =
      from.dtype == to.dtype && from.rank == to.rank && rank_fits(from) &&
      facts_of(from.dtype).known &&
      std::equal(from.shape.begin(), from.shape.begin() + from.rank, to.shape.begin());
  if (!same)
    throw InvalidOperand(fmt::format("copy_tensor: from {} to {}, expected the same type and shape",
                                     describe(from), describe(to)));
  if (from.elements() == 0) return;
  Rows source, target;
  const auto take = [](const ConstTensorView& view, Rows& rows) {
    if (!view || !rows_of(view, rows))
      throw InvalidOperand(
          fmt::format("copy_tensor: {}, expected a contiguous tensor or a slice of its channels",
                      describe(view)));
  };
  take(from, source), take(to, target);
  // One side may be contiguous where the other is a slice: cut both into the slice's rows.
  const Index row = std::min(source.row, target.row);
  for (Rows* rows : {&source, &target})
    if (rows->row > row) *rows = {rows->row / row, row, row};
  const auto bytes = [&](Index elements) {
    return static_cast<std::size_t>(elements) * size_of(from.dtype);
  };
  if (from.device.kind == DeviceKind::cpu && to.device.kind == DeviceKind::cpu) {
    const auto* read = static_cast<const char*>(from.data);
    auto* write = static_cast<char*>(to.data);
    for (Index i = 0; i < source.count; ++i)
      std::memcpy(write + bytes(i * target.pitch), read + bytes(i * source.pitch), bytes(row));
    return;
  }
  gpu::copy({.from = from.data,
             .to = to.data,
             .from_device = from.device,
             .to_device = to.device,
             .row_bytes = bytes(row),
             .rows = static_cast<std::size_t>(source.count),
             .from_pitch = bytes(source.pitch),
             .to_pitch = bytes(target.pitch)},
            stream);
} catch (...) {
  rethrow_as_error();
}

namespace {
// [T,] N, then the image in the stage's layout.
std::vector<Index> image_shape(const Stage& stage, bool steps, Index h, Index w, Index c,
                               Layout layout) {
  std::vector<Index> shape;
  if (steps) shape.push_back(stage.t);
  shape.push_back(stage.n);
  if (layout == Layout::nchw) shape.push_back(c);
  shape.push_back(h);
  shape.push_back(w);
  if (layout == Layout::nhwc) shape.push_back(c);
  return shape;
}
}  // namespace

std::vector<Index> x_shape(const Stage& given) {
  const Stage stage = given.normalised();
  return image_shape(stage, stage.act.is_neuron() && !stage.hold, stage.h, stage.w, stage.c,
                     stage.layout);
}
std::vector<Index> w_shape(const Stage& given) {
  const Stage stage = given.normalised();
  return {stage.k, stage.r, stage.s, stage.c / stage.groups};
}
std::vector<Index> y_shape(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return image_shape(stage, stage.act.is_neuron(), shapes.out_h, shapes.out_w, stage.k,
                     stage.layout);
}
std::vector<Index> pre_shape(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return image_shape(stage, stage.act.is_neuron(), shapes.p, shapes.q, stage.k, Layout::nhwc);
}
std::vector<Index> membrane_shape(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return {stage.n, shapes.p, shapes.q, stage.k};
}

}  // namespace convoy
