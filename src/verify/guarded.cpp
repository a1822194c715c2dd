#include "verify/guarded.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "math/half.hpp"

namespace convoy::verify {
namespace {

constexpr std::size_t fence = 1024;  // bytes before, between and after the operands
constexpr char poison = '\xff';      // NaN in every floating-point type, -1 in i32

// One operand: where it lies in the block, and how.
class Fenced {
 public:
  Fenced(std::string_view name, DType dtype, const std::vector<Index>& shape, Layout layout,
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
    const std::size_t size = size_of(view_.dtype);
    const char* base = values_->data<char>();
    const Fenced dense("", view_.dtype, shape(), layout_, Views::dense, nullptr);
    std::vector<std::ptrdiff_t> from;
    from.reserve(static_cast<std::size_t>(view_.elements()));
    dense.for_each([&](std::ptrdiff_t at) { from.push_back(at); });
    std::size_t i = 0;
    for_each([&](std::ptrdiff_t at) { std::memcpy(block + at, base + from[i++], size); });
  }
  std::vector<float> read(const char* block) const {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(view_.elements()));
    for_each([&](std::ptrdiff_t at) { values.push_back(math::load(view_.dtype, block + at, 0)); });
    return values;
  }
  std::vector<std::int32_t> read_integers(const char* block) const {
    std::vector<std::int32_t> values;
    for_each([&](std::ptrdiff_t at) {
      values.push_back(0);
      std::memcpy(&values.back(), block + at, sizeof values.back());
    });
    return values;
  }
  void wipe(char* block) const {
    const std::size_t size = size_of(view_.dtype);
    for_each([&](std::ptrdiff_t at) { std::memset(block + at, poison, size); });
  }

 private:
  std::vector<Index> shape() const {
    return {view_.shape.begin(), view_.shape.begin() + view_.rank};
  }
  /// f(element's byte in the block) for each in the order [T,N,H,W,C], whatever the layout.
  template <class F>
  void for_each(F&& f) const {
    std::array<std::size_t, 5> order{0, 1, 2, 3, 4};
    const auto rank = static_cast<std::size_t>(view_.rank);
    if (layout_ == Layout::nchw)  // C, H, W become H, W, C
      std::rotate(order.begin() + view_.rank - 3, order.begin() + view_.rank - 2,
                  order.begin() + view_.rank);
    const std::size_t inner = rank > 0 ? order[rank - 1] : 0;
    const Index run = rank > 0 ? view_.shape[inner] : 1;
    const auto size = static_cast<Index>(size_of(view_.dtype));
    std::array<Index, 5> at{};
    const Index runs = run > 0 ? view_.elements() / run : 0;
    for (Index i = 0; i < runs; ++i) {
      Index from = 0;
      for (std::size_t axis = 0; axis < rank; ++axis) from += at[axis] * view_.stride[axis];
      for (Index j = 0; j < run; ++j)
        f(static_cast<std::ptrdiff_t>(offset_) + (from + j * view_.stride[inner]) * size);
      for (std::size_t axis = rank > 0 ? rank - 1 : 0; axis-- > 0;) {
        if (++at[order[axis]] < view_.shape[order[axis]]) break;
        at[order[axis]] = 0;
      }
    }
  }

  std::string_view name_;
  TensorView view_;
  Layout layout_;
  const Tensor* values_;
  std::size_t shift_ = 0, offset_ = 0;
};

// All operands of one run in one block of host memory.
class Block {
 public:
  std::size_t add(std::string_view name, DType dtype, const std::vector<Index>& shape,
                  Layout layout, Views views, const Tensor* values) {
    operands_.emplace_back(name, dtype, shape, layout, views, values);
    bytes_ = operands_.back().place(bytes_);
    return operands_.size() - 1;
  }
  /// After the last `add`: memory, poisoned, with the inputs in their places.
  void make() {
    memory_ = Tensor(DType::u8, {static_cast<Index>(bytes_)});
    std::memset(memory_.data<char>(), poison, bytes_);
    for (const Fenced& operand : operands_)
      if (!operand.is_output()) operand.fill(memory_.data<char>());
    before_ = memory_.clone();
  }
  Tensor& memory() { return memory_; }
  const Fenced& operator[](std::size_t i) const { return operands_[i]; }

  /// Empty, or what was changed besides the outputs' elements. Overwrites these.
  std::string damage() {
    for (const Fenced& operand : operands_)
      if (operand.is_output()) operand.wipe(memory_.data<char>());
    const char* begin = memory_.data<char>();
    const auto found = std::mismatch(begin, begin + bytes_, before_.data<char>()).first;
    if (found == begin + bytes_) return {};
    // The operand whose elements or fence this is: the last that begins before it, but the bytes
    // just before an operand are its fence too.
    const std::ptrdiff_t at = found - begin;
    const Fenced* nearest = &operands_.front();
    for (const Fenced& operand : operands_)
      if (operand.offset() - static_cast<std::ptrdiff_t>(fence / 2) <= at) nearest = &operand;
    return fmt::format("wrote outside the outputs: byte {} counted from the first element of {}",
                       at - nearest->offset(), nearest->name());
  }

 private:
  std::vector<Fenced> operands_;
  std::size_t bytes_ = fence;
  Tensor memory_, before_;
};

}  // namespace

Result run_guarded(const Plan& plan, const Inputs& inputs, Views views) {
  return Guard(plan.device()).run(plan, inputs, views);
}
Result run_guarded(const std::function<Status(const Operands&)>& run, const Inputs& inputs,
                   Views views) {
  return Guard(Device{}).run([&](const Operands& operands, Stream) { return run(operands); },
                             inputs, views);
}

Result Guard::run(const Plan& plan, const Inputs& inputs, Views views) {
  return run([&](const Operands& operands, Stream stream) { return plan.run(operands, stream); },
             inputs, views);
}

Result Guard::run(const std::function<Status(const Operands&, Stream)>& run, const Inputs& inputs,
                  Views views) {
  const Stage& stage = inputs.stage;
  const DType out = stage.output_dtype(device_.kind == DeviceKind::cuda);
  const Layout layout = stage.layout;
  Block block;
  Operands operands;
  std::vector<std::pair<TensorView*, std::size_t>> placed;
  const auto add = [&](TensorView& operand, std::string_view name, DType dtype,
                       const std::vector<Index>& shape, Layout order, Views how,
                       const Tensor* values) {
    placed.emplace_back(&operand, block.add(name, dtype, shape, order, how, values));
    return placed.back().second;
  };
  constexpr Layout nhwc = Layout::nhwc;
  const auto input = [&](TensorView& operand, std::string_view name, const Tensor& values) {
    const TensorView& v = values.view();
    if (v)
      add(operand, name, v.dtype, {v.shape.begin(), v.shape.begin() + v.rank}, nhwc, Views::dense,
          &values);
  };
  add(operands.x, "x", stage.dtype, x_shape(stage), layout, views, &inputs.x);
  if (stage.bias) input(operands.bias, "bias", inputs.bias);
  if (stage.norm) input(operands.norm_scale, "norm_scale", inputs.norm_scale);
  if (stage.norm) input(operands.norm_shift, "norm_shift", inputs.norm_shift);
  input(operands.membrane_in, "membrane_in", inputs.membrane_in);
  const std::size_t y = add(operands.y, "y", out, y_shape(stage), layout, views, nullptr);
  std::size_t pre = 0, act = 0, idx = 0, membrane = 0;
  const auto output = [&](TensorView& operand, std::string_view name, DType dtype,
                          const std::vector<Index>& shape, Layout order) {
    return add(operand, name, dtype, shape, order, Views::dense, nullptr);
  };
  if (stage.keep.pre) pre = output(operands.pre, "pre", out, pre_shape(stage), nhwc);
  if (stage.keep.act) act = output(operands.act, "act", out, pre_shape(stage), nhwc);
  if (stage.keep.idx) idx = output(operands.idx, "idx", DType::i32, y_shape(stage), layout);
  if (stage.act.is_neuron())
    membrane =
        output(operands.membrane_out, "membrane_out", DType::f32, membrane_shape(stage), nhwc);

  block.make();
  TensorView host = block.memory(), device = host;
  if (device_.kind != DeviceKind::cpu) {
    if (on_device_.elements() < host.elements())
      on_device_ = Tensor(DType::u8, {host.elements() * 3 / 2}, device_);
    device = TensorView(on_device_.view().data, DType::u8, {host.elements()}, device_);
    copy(host, device, stream());
  }
  for (const auto& [operand, at] : placed)
    *operand = block[at].view(static_cast<char*>(device.data), device_);

  Result result;
  const Status status = run(operands, stream());
  if (!status.ok()) {
    result.error = "refused to run: " + status.message();
    result.refused = true;
    return result;
  }
  if (device_.kind != DeviceKind::cpu) copy(device, host, stream());
  const char* memory = block.memory().data<char>();
  result.y = block[y].read(memory);
  if (pre) result.pre = block[pre].read(memory);
  if (act) result.act = block[act].read(memory);
  if (idx) result.idx = block[idx].read_integers(memory);
  if (membrane) result.membrane = block[membrane].read(memory);
  result.error = block.damage();
  return result;
}

}  // namespace convoy::verify
