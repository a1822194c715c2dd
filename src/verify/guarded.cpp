#include "verify/guarded.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "math/half.hpp"

namespace convoy::verify {
namespace {

constexpr std::size_t fence = 256;  // bytes before and after
constexpr char poison = '\xff';     // NaN in every floating-point type, -1 in i32

class Fenced {
 public:
  Fenced(DType dtype, const std::vector<Index>& shape, Layout layout, Views views)
      : view_(nullptr, dtype, shape), layout_(layout) {
    std::size_t offset = fence;
    if (views == Views::strided) {
      offset += size_of(dtype);
      const bool nhwc = layout == Layout::nhwc;
      // The axis between whose steps the gaps are: pixels or images.
      int axis = view_.rank - (nhwc ? 2 : 4);
      Index step = view_.stride[static_cast<std::size_t>(axis)] + (nhwc ? 3 : 5);
      for (; axis >= 0; --axis) {
        view_.stride[static_cast<std::size_t>(axis)] = step;
        step *= view_.shape[static_cast<std::size_t>(axis)];
      }
    }
    const Index outer = view_.rank > 0 ? view_.stride[0] * view_.shape[0] : 1;
    bytes_ = offset + static_cast<std::size_t>(outer) * size_of(dtype) + fence;
    memory_ = Tensor(DType::u8, {static_cast<Index>(bytes_)});
    std::memset(memory_.data<char>(), poison, bytes_);
    view_.data = memory_.data<char>() + offset;
  }

  const TensorView& view() const { return view_; }

  /// f(element's address) for each in the order [T,N,H,W,C], whatever the layout.
  template <class F>
  void for_each(F&& f) const {
    std::array<std::size_t, 5> order{0, 1, 2, 3, 4};
    const auto rank = static_cast<std::size_t>(view_.rank);
    if (layout_ == Layout::nchw)  // C, H, W become H, W, C
      std::rotate(order.begin() + view_.rank - 3, order.begin() + view_.rank - 2,
                  order.begin() + view_.rank);
    std::array<Index, 5> at{};
    const Index count = view_.elements();
    for (Index i = 0; i < count; ++i) {
      Index offset = 0;
      for (std::size_t axis = 0; axis < rank; ++axis) offset += at[axis] * view_.stride[axis];
      f(static_cast<char*>(view_.data) + offset * static_cast<Index>(size_of(view_.dtype)));
      for (std::size_t axis = rank; axis-- > 0;) {
        if (++at[order[axis]] < view_.shape[order[axis]]) break;
        at[order[axis]] = 0;
      }
    }
  }

  void fill(const Tensor& dense, Layout layout) {
    const std::size_t size = size_of(view_.dtype);
    std::vector<const char*> from;
    from.reserve(static_cast<std::size_t>(dense.elements()));
    Fenced(dense.view(), layout).for_each([&](const char* element) { from.push_back(element); });
    std::size_t i = 0;
    for_each([&](char* to) { std::memcpy(to, from[i++], size); });
  }

  std::vector<float> read() const {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(view_.elements()));
    for_each([&](const char* at) { values.push_back(math::load(view_.dtype, at, 0)); });
    return values;
  }
  std::vector<std::int32_t> read_integers() const {
    std::vector<std::int32_t> values;
    for_each([&](const char* at) {
      values.push_back(0);
      std::memcpy(&values.back(), at, sizeof values.back());
    });
    return values;
  }

  /// Empty, or where the poison around the elements is gone. Overwrites the elements.
  std::string damage(std::string_view name) {
    const std::size_t size = size_of(view_.dtype);
    for_each([&](char* element) { std::memset(element, poison, size); });
    const char* begin = memory_.data<char>();
    const char* found = std::find_if(begin, begin + bytes_, [](char c) { return c != poison; });
    if (found == begin + bytes_) return {};
    return fmt::format("wrote outside {}: byte {} counted from its first element", name,
                       found - static_cast<const char*>(view_.data));
  }

 private:
  Fenced(const TensorView& view, Layout layout) : view_(view), layout_(layout) {}

  Tensor memory_;
  std::size_t bytes_ = 0;
  TensorView view_;
  Layout layout_;
};

}  // namespace

Result run_guarded(const Plan& plan, const Inputs& inputs, Views views) {
  return run_guarded([&](const Operands& operands) { return plan.run(operands); }, inputs, views);
}

Result run_guarded(const std::function<Status(const Operands&)>& run, const Inputs& inputs,
                   Views views) {
  const Stage& stage = inputs.stage;
  const DType out = stage.output_dtype();
  const Layout layout = stage.layout;
  Operands operands = inputs.operands();
  Fenced x(stage.dtype, x_shape(stage), layout, views);
  x.fill(inputs.x, layout);
  operands.x = x.view();

  Fenced y(out, y_shape(stage), layout, views);
  operands.y = y.view();
  std::optional<Fenced> pre, act, idx, membrane;
  const auto dense = [&](std::optional<Fenced>& output, DType dtype,
                         const std::vector<Index>& shape, Layout order) {
    output.emplace(dtype, shape, order, Views::dense);
    return output->view();
  };
  if (stage.keep.pre) operands.pre = dense(pre, out, pre_shape(stage), Layout::nhwc);
  if (stage.keep.act) operands.act = dense(act, out, pre_shape(stage), Layout::nhwc);
  if (stage.keep.idx) operands.idx = dense(idx, DType::i32, y_shape(stage), layout);
  if (stage.act.is_neuron())
    operands.membrane_out = dense(membrane, DType::f32, membrane_shape(stage), Layout::nhwc);

  Result result;
  const Status status = run(operands);
  if (!status.ok()) {
    result.error = "refused to run: " + status.message();
    return result;
  }
  result.y = y.read();
  if (pre) result.pre = pre->read();
  if (act) result.act = act->read();
  if (idx) result.idx = idx->read_integers();
  if (membrane) result.membrane = membrane->read();
  result.error = y.damage("y");
  const auto look = [&](std::optional<Fenced>& output, std::string_view name) {
    if (output && result.error.empty()) result.error = output->damage(name);
  };
  look(pre, "pre");
  look(act, "act");
  look(idx, "idx");
  look(membrane, "membrane_out");
  return result;
}

}  // namespace convoy::verify
