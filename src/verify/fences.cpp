#include "verify/fences.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "math/half.hpp"

namespace convoy::verify {
namespace {

constexpr std::size_t fence = 1024;  // bytes before, between and after the operands
constexpr char poison = '\xff';      // NaN in every floating-point type, -1 in i32

}  // namespace

// One operand: where it lies in the block, and how.
class Fences::Operand {
 public:
  Operand(std::string_view name, DType dtype, const std::vector<Index>& shape, Layout layout,
          Views views, const Tensor* values)
      : name_(name), view_(nullptr, dtype, shape), layout_(layout), values_(values) {
    if (views == Views::dense) return;
    const bool nhwc = layout == Layout::nhwc;
    const auto sixteen = static_cast<Index>(16 / size_of(dtype));
    Index gap = nhwc ? 3 : 5;
    if (views == Views::aligned) gap = sixteen;
    if (views == Views::strided) shift_ = size_of(dtype);
    // The axis between whose steps the gaps are: pixels or images.
    int axis = view_.rank - (nhwc ? 2 : 4);
    Index step = view_.stride[static_cast<std::size_t>(axis)] + gap;
    for (; axis >= 0; --axis) {
      view_.stride[static_cast<std::size_t>(axis)] = step;
      step *= view_.shape[static_cast<std::size_t>(axis)];
    }
  }

  /// Takes its place behind `offset` bytes of the block; returns how far it reaches, with its
  /// fence.
  std::size_t place(std::size_t offset) {
    offset_ = offset + shift_;
    const Index extent = view_.rank > 0 ? view_.stride[0] * view_.shape[0] : 1;
    const std::size_t end = offset_ + static_cast<std::size_t>(extent) * size_of(view_.dtype);
    return (end + fence + 255) / 256 * 256;
  }

  std::string_view name() const { return name_; }
  bool is_output() const { return values_ == nullptr; }
  std::ptrdiff_t offset() const { return static_cast<std::ptrdiff_t>(offset_); }
  TensorView view(char* block, Device device) const {
    TensorView view = view_;
    view.data = block + offset_;
    view.device = device;
    return view;
  }

  void fill(char* block) const {
    const char* from = values_->data<char>();
    for_each_stretch([&](std::size_t at, std::size_t bytes) {
      std::memcpy(block + at, from, bytes);
      from += bytes;
    });
  }
  /// The elements in the order [T,N,H,W,C], whatever the layout, as fp32 or i32 numbers.
  template <class T>
  std::vector<T> read(const char* block) const {
    const DType dtype = view_.dtype;
    std::vector<T> values(static_cast<std::size_t>(view_.elements()));
    T* to = values.data();
    for_each_run(Layout::nhwc, [&](std::size_t at, Index count, Index step) {
      const char* from = block + at;
      if (size_of(dtype) != sizeof(T))
        for (Index i = 0; i < count; ++i) to[i] = static_cast<T>(math::load(dtype, from, i * step));
      else if (step == 1)
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
      else
        for (Index i = 0; i < count; ++i)
          std::memcpy(to + i, from + static_cast<std::size_t>(i * step) * sizeof(T), sizeof(T));
      to += count;
    });
    return values;
  }
  /// f(first byte in the block, bytes) for each stretch of memory that elements fill, upwards.
  template <class F>
  void for_each_stretch(F&& f) const {
    for_each_run(layout_, [&](std::size_t at, Index count, Index) {
      f(at, static_cast<std::size_t>(count) * size_of(view_.dtype));
    });
  }

 private:
  /// f(first byte in the block, elements, elements from one to the next) for each run of elements
  /// at one pitch, in the order of the view's own axes, or as [T,N,H,W,C] where `order` is NHWC.
  template <class F>
  void for_each_run(Layout order, F&& f) const {
    std::array<std::size_t, 5> axes{0, 1, 2, 3, 4};
    const auto rank = static_cast<std::size_t>(view_.rank);
    if (layout_ == Layout::nchw && order == Layout::nhwc)  // C, H, W become H, W, C
      std::rotate(axes.begin() + view_.rank - 3, axes.begin() + view_.rank - 2,
                  axes.begin() + view_.rank);
    std::size_t outer = rank - 1;
    const Index step = view_.stride[axes[outer]];
    Index count = view_.shape[axes[outer]];
    while (outer > 0 && view_.stride[axes[outer - 1]] == count * step)
      count *= view_.shape[axes[--outer]];

    std::array<Index, 5> at{};
    for (Index run = count > 0 ? view_.elements() / count : 0; run > 0; --run) {
      Index from = 0;
      for (std::size_t axis = 0; axis < outer; ++axis) from += at[axis] * view_.stride[axes[axis]];
      f(offset_ + static_cast<std::size_t>(from) * size_of(view_.dtype), count, step);
      for (std::size_t axis = outer; axis-- > 0;) {
        if (++at[axis] < view_.shape[axes[axis]]) break;
        at[axis] = 0;
      }
    }
  }

  std::string_view name_;
  TensorView view_;
  Layout layout_;
  const Tensor* values_;
  std::size_t shift_ = 0, offset_ = 0;
};

Fences::Fences(Device device) : device_(device), stream_(device), bytes_(fence) {}
Fences::~Fences() = default;

void Fences::clear() {
  operands_.clear();
  bytes_ = fence;
}

std::size_t Fences::add(std::string_view name, DType dtype, const std::vector<Index>& shape,
                        Layout layout, Views views, const Tensor* values) {
  operands_.emplace_back(name, dtype, shape, layout, views, values);
  bytes_ = operands_.back().place(bytes_);
  return operands_.size() - 1;
}

void Fences::place() {
  if (before_.size() < bytes_) {
    memory_ = Buffer<char>(bytes_);
    before_ = Buffer<char>(bytes_);
  }
  std::memset(before_.data(), poison, bytes_);
  for (const Operand& operand : operands_)
    if (!operand.is_output()) operand.fill(before_.data());
  std::memcpy(memory_.data(), before_.data(), bytes_);
  if (device_.kind == DeviceKind::cpu) return;
  const auto bytes = static_cast<Index>(bytes_);
  if (there_.elements() < bytes) there_ = Tensor(DType::u8, {bytes * 3 / 2}, device_);
  copy_tensor(host(), on_device(), stream());
}

TensorView Fences::host() const {
  return {memory(), DType::u8, {static_cast<Index>(bytes_)}};
}
TensorView Fences::on_device() {
  return {there_.view().data, DType::u8, {static_cast<Index>(bytes_)}, device_};
}

TensorView Fences::view(std::size_t i) {
  const bool cpu = device_.kind == DeviceKind::cpu;
  return operands_[i].view(cpu ? memory() : there_.data<char>(), device_);
}

void Fences::fetch() {
  if (device_.kind != DeviceKind::cpu) copy_tensor(on_device(), host(), stream());
}

std::vector<float> Fences::floats(std::size_t i) const {
  return operands_[i].read<float>(memory());
}
std::vector<std::int32_t> Fences::integers(std::size_t i) const {
  return operands_[i].read<std::int32_t>(memory());
}

std::string Fences::damage() const {
  std::size_t same = 0;  // all before this byte is as it was, or an output's element
  const auto compare_up_to = [&](std::size_t end) {
    if (std::memcmp(memory() + same, before_.data() + same, end - same) != 0) return false;
    same = end;
    return true;
  };
  bool whole = true;
  for (const Operand& operand : operands_)
    if (operand.is_output())
      operand.for_each_stretch([&](std::size_t at, std::size_t bytes) {
        whole = whole && compare_up_to(at);
        if (whole) same = at + bytes;
      });
  if (whole && compare_up_to(bytes_)) return {};
  // The operand whose elements or fence this is: the last that begins before it, but the bytes
  // just before an operand are its fence too.
  const std::ptrdiff_t at =
      std::mismatch(memory() + same, memory() + bytes_, before_.data() + same).first - memory();
  const Operand* nearest = &operands_.front();
  for (const Operand& operand : operands_)
    if (operand.offset() - static_cast<std::ptrdiff_t>(fence / 2) <= at) nearest = &operand;
  return fmt::format("wrote outside the outputs: byte {} counted from the first element of {}",
                     at - nearest->offset(), nearest->name());
}

}  // namespace convoy::verify
