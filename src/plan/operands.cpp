#include "plan/operands.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdint>

#include "core/failure.hpp"

namespace convoy {
namespace {

Status invalid(const std::string& message) {
  return {StatusCode::invalid_operand, message};
}

// One operand as it goes through the checks. Inputs and outputs are checked alike; nothing is
// copied of either, as small runs take less than a microsecond.
struct Operand {
  template <class View>
  Operand(std::string_view name_, const View& given)
      : name(name_), tensor(given), data(given.data) {}

  std::string_view name;
  const TensorDescriptor& tensor;
  const void* data;
  Index run = 0;     // bytes that are touched of each pixel; 0 for a dense tensor
  Index period = 0;  // bytes from one pixel to the next

  /// A tensor without elements may have no memory.
  bool is_given() const { return data || (tensor.rank > 0 && tensor.elements() == 0); }
  std::string description() const {
    ConstTensorView view;
    static_cast<TensorDescriptor&>(view) = tensor;
    view.data = data;
    return describe(view);
  }
};

// The shape that an operand must have; -1 stands for the n of this run.
struct Expected {
  DType dtype;
  int rank = 0;
  std::array<Index, 5> shape{};
  void push(Index size) { shape[static_cast<std::size_t>(rank++)] = size; }
};

Expected image(const Stage& stage, DType dtype, bool steps, Index h, Index w, Index c,
               Layout layout) {
  Expected expected{dtype, 0, {}};
  if (steps) expected.push(stage.t);
  expected.push(-1);
  if (layout == Layout::nchw) expected.push(c);
  expected.push(h);
  expected.push(w);
  if (layout == Layout::nhwc) expected.push(c);
  return expected;
}

Expected vector_of(Index count) {
  Expected expected{DType::f32, 0, {}};
  expected.push(count);
  return expected;
}

std::string to_text(const Expected& expected, Index most_images) {
  std::string text = fmt::format("{}[", to_text(expected.dtype));
  for (int axis = 0; axis < expected.rank; ++axis) {
    const Index size = expected.shape[static_cast<std::size_t>(axis)];
    if (axis) text += ',';
    text += size < 0 ? fmt::format("0..{}", most_images) : fmt::format("{}", size);
  }
  return text + "]";
}

Status check_address(std::string_view what, const void* data, DType dtype) {
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0) return {};
  return invalid(
      fmt::format("{}: its address is {}, expected a multiple of {}, the size of {}. Align it.",
                  what, data, size_of(dtype), to_text(dtype)));
}

// n: the images of the operands before this one; -1: there is none.
Status check_shape(const Operand& operand, const Expected& expected, Device device,
                   Index most_images, Index& n) {
  const TensorDescriptor& tensor = operand.tensor;
  bool good = tensor.dtype == expected.dtype && tensor.rank == expected.rank;
  for (std::size_t axis = 0; good && axis < static_cast<std::size_t>(expected.rank); ++axis) {
    const Index size = tensor.shape[axis];
    if (expected.shape[axis] >= 0) {
      good = size == expected.shape[axis];
    } else {
      good = size >= 0 && size <= most_images;
      if (good && n >= 0 && size != n)
        return invalid(fmt::format("{}: {} images, but x has {}. Give every operand the same n.",
                                   operand.name, size, n));
      if (good) n = size;
    }
  }
  if (!good)
    return invalid(
        fmt::format("{}: found {}, expected {}. Check the stage's sizes, or make a new plan "
                    "for these.",
                    operand.name, operand.description(), to_text(expected, most_images)));
  if (!(tensor.device == device))
    return invalid(
        fmt::format("{}: it is on {}, expected {}, the device of the plan. Copy it there first.",
                    operand.name, to_text(tensor.device), to_text(device)));
  return check_address(operand.name, operand.data, tensor.dtype);
}

Status check_dense(const Operand& operand) {
  if (operand.tensor.contiguous()) return {};
  return invalid(fmt::format("{}: {}, expected a contiguous tensor. Only x and y may be slices.",
                             operand.name, operand.description()));
}

// Two channel slices of one concatenation lie over each other without touching: that is how a block
// writes beside its own input.
bool interleaved(const Operand& a, const Operand& b, Index distance) {
  if (a.period == 0 || a.period != b.period) return false;
  Index offset = distance % a.period;
  if (offset < 0) offset += a.period;
  return offset >= a.run && offset + b.run <= a.period;
}

bool overlap(const Operand& a, const Operand& b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  const auto bytes_a = static_cast<std::uintptr_t>(extent_bytes(a.tensor).value());
  if (bytes_a == 0 || begin_a + bytes_a <= begin_b) return false;
  const auto bytes_b = static_cast<std::uintptr_t>(extent_bytes(b.tensor).value());
  if (bytes_b == 0 || begin_b + bytes_b <= begin_a) return false;
  return !interleaved(a, b, static_cast<Index>(begin_b - begin_a));
}

}  // namespace

Status check_aligned(std::string_view what, const ConstTensorView& view) {
  return check_address(what, view.data, view.dtype);
}

void check_reach(std::string_view what, const ConstTensorView& view) {
  Size reach;  // of the furthest element
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    const Index stride = view.stride[axis];
    reach += Size(view.shape[axis] - 1) * Size(stride < 0 ? -(stride + 1) : stride);
  }
  if (!reach.fits())
    throw InvalidOperand(fmt::format(
        "{}: found {}, expected strides that fit in memory. Give the strides in elements.", what,
        describe(view)));
}

Size extent_bytes(const TensorDescriptor& view) {
  Size last;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    if (view.shape[axis] == 0) return 0;
    if (view.shape[axis] > 1) last += Size(view.shape[axis] - 1) * view.stride[axis];
  }
  return (last + 1) * static_cast<Index>(size_of(view.dtype));
}

namespace {

// How to walk x or y: NHWC with any pixel stride, NCHW with any image stride. steps: the outermost
// axis is T. Filled strides, or why not.
Status strides_of(const Operand& operand, Layout layout, bool steps, Strides& strides) {
  const TensorDescriptor& view = operand.tensor;
  const std::size_t first = steps ? 1 : 0;  // the axis of n
  const bool nhwc = layout == Layout::nhwc;
  const auto axis = [&](std::size_t i) { return view.shape[first + i]; };
  const auto step = [&](std::size_t i) { return view.stride[first + i]; };
  const Index c = nhwc ? axis(3) : axis(1), h = nhwc ? axis(1) : axis(2),
              w = nhwc ? axis(2) : axis(3);
  const Index channel_stride = nhwc ? step(3) : step(1);
  const Index row_stride = nhwc ? step(1) : step(2), pixel_stride = nhwc ? step(2) : step(3);

  // An axis of one element has no stride worth the name: the first one outside that has more than
  // one tells what a pixel (NHWC) or an image (NCHW) takes.
  Index unit = nhwc ? c : c * h * w;
  const Index least = unit;
  if (nhwc && w > 1)
    unit = pixel_stride;
  else if (nhwc && h > 1)
    unit = row_stride;
  else if (axis(0) > 1)
    unit = step(0);
  else if (steps && view.shape[0] > 1)
    unit = view.stride[0];

  const Size row = Size(w) * unit, image = nhwc ? row * h : Size(unit), all = image * axis(0);
  const Size everything = steps ? all * view.shape[0] : all;
  bool good = unit >= least && (everything * static_cast<Index>(size_of(view.dtype))).fits();
  if (good) {
    strides =
        nhwc ? Strides{0, image.value(), row.value(), unit, 1} : Strides{0, unit, w, 1, h * w};
    if (steps) strides.t = all.value();
    good = !steps || view.shape[0] == 1 || view.stride[0] == strides.t;
  }
  good = good && (axis(0) == 1 || step(0) == strides.n) && (h == 1 || row_stride == strides.h) &&
         (w == 1 || pixel_stride == strides.w) && (c == 1 || channel_stride == strides.c);
  if (good) return {};
  return invalid(fmt::format(
      "{}: {}. Expected {}; copy it into such a tensor first.", operand.name, operand.description(),
      nhwc ? fmt::format(
                 "NHWC with channels side by side, pixels at any equal distance of at least {} "
                 "elements, and rows and images without gaps",
                 c)
           : fmt::format("NCHW with dense images at any equal distance of at least {} elements",
                         least)));
}

enum class Given : std::uint8_t { never, optional, always };

/// What a stage says of one operand.
struct Rule {
  Operand operand;
  Given given;
  std::string_view rider;  // that it is for
  Expected expected;
};

/// Of all operands, those that a run reads first.
constexpr std::size_t first_written = 5;
std::array<Rule, 10> rules_of(const Stage& stage, const Shapes& shapes, Device device,
                              const Operands& operands) {
  const DType out = stage.output_dtype(device.kind == DeviceKind::cuda);
  const bool neuron = stage.act.is_neuron();
  const auto full = [&](DType dtype, bool steps) {
    return image(stage, dtype, steps, shapes.p, shapes.q, stage.k, Layout::nhwc);
  };
  const auto if_rider = [](bool has) { return has ? Given::always : Given::never; };
  const Given state = neuron ? Given::optional : Given::never;
  const Expected x =
      image(stage, stage.dtype, neuron && !stage.hold, stage.h, stage.w, stage.c, stage.layout);
  const Expected y = image(stage, out, neuron, shapes.out_h, shapes.out_w, stage.k, stage.layout);
  Expected index = y;
  index.dtype = DType::i32;
  return {{
      {{"x", operands.x}, Given::always, "", x},
      {{"bias", operands.bias}, if_rider(stage.bias), "+bias", vector_of(stage.k)},
      {{"norm_scale", operands.norm_scale}, if_rider(stage.norm), "+norm", vector_of(stage.c)},
      {{"norm_shift", operands.norm_shift}, if_rider(stage.norm), "+norm", vector_of(stage.c)},
      {{"membrane_in", operands.membrane_in}, state, "neuron", full(DType::f32, false)},
      {{"y", operands.y}, Given::always, "", y},
      {{"pre", operands.pre}, if_rider(stage.keep.pre), "+keep(pre)", full(out, neuron)},
      {{"act", operands.act}, if_rider(stage.keep.act), "+keep(act)", full(out, neuron)},
      {{"idx", operands.idx}, if_rider(stage.keep.idx), "+keep(idx)", index},
      {{"membrane_out", operands.membrane_out}, state, "neuron", full(DType::f32, false)},
  }};
}

/// Of x and y, whose pixels may lie apart: their strides, and which bytes the operand takes.
Status bind_image(const Stage& stage, const Shapes& shapes, bool is_x, Operand& operand,
                  RunArgs& args) {
  const bool steps = stage.act.is_neuron() && (!is_x || !stage.hold);
  Strides& strides = is_x ? args.x_stride : args.y_stride;
  Status status = strides_of(operand, stage.layout, steps, strides);
  if (!status.ok()) return status;
  const Index bytes = static_cast<Index>(size_of(operand.tensor.dtype));
  const bool nhwc = stage.layout == Layout::nhwc;
  const Index channels = is_x ? stage.c : stage.k;
  const Index pixels = is_x ? stage.h * stage.w : shapes.out_h * shapes.out_w;
  operand.run = (nhwc ? channels : channels * pixels) * bytes;
  operand.period = (nhwc ? strides.w : strides.n) * bytes;
  return {};
}

Status check_overlaps(const std::array<Rule, 10>& rules) {
  for (std::size_t i = first_written; i < rules.size(); ++i) {
    for (std::size_t j = 0; j < i && rules[i].operand.data; ++j) {
      if (!rules[j].operand.data || !overlap(rules[i].operand, rules[j].operand)) continue;
      return invalid(fmt::format("{} and {} overlap in memory. Give {} its own memory.",
                                 rules[i].operand.name, rules[j].operand.name,
                                 rules[i].operand.name));
    }
  }
  return {};
}

}  // namespace

Status bind_operands(const Stage& stage, const Shapes& shapes, Device device,
                     const Operands& operands, RunArgs& args) {
  std::array<Rule, 10> rules = rules_of(stage, shapes, device, operands);
  Index n = -1;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    Rule& rule = rules[i];
    Operand& operand = rule.operand;
    if (!operand.is_given()) {
      if (rule.given == Given::always)
        return invalid(fmt::format("{}: not given, expected {}{}{}. Pass it with the operands.",
                                   operand.name, to_text(rule.expected, stage.n),
                                   rule.rider.empty() ? "" : " for ", rule.rider));
      continue;
    }
    if (rule.given == Given::never)
      return invalid(fmt::format(
          "{}: given, but the stage has no {}. Leave the operand out, or add it to the stage {}.",
          operand.name, rule.rider, to_text(stage)));
    Status status = check_shape(operand, rule.expected, device, stage.n, n);
    if (!status.ok()) return status;
    if (n == 0) continue;  // nothing is read or written
    const bool is_x = i == 0, is_y = i == first_written;
    status = is_x || is_y ? bind_image(stage, shapes, is_x, operand, args) : check_dense(operand);
    if (!status.ok()) return status;
  }
  if (Status status = check_overlaps(rules); !status.ok()) return status;

  args.n = n;
  args.x = operands.x.data;
  args.bias = static_cast<const float*>(operands.bias.data);
  args.norm_scale = static_cast<const float*>(operands.norm_scale.data);
  args.norm_shift = static_cast<const float*>(operands.norm_shift.data);
  args.y = operands.y.data;
  args.pre = operands.pre.data;
  args.act = operands.act.data;
  args.idx = static_cast<std::int32_t*>(operands.idx.data);
  args.membrane_in = static_cast<const float*>(operands.membrane_in.data);
  args.membrane_out = static_cast<float*>(operands.membrane_out.data);
  return {};
}

Status check_workspace(const Operands& operands, std::size_t bytes) {
  if (!operands.workspace || bytes == 0) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(operands.workspace);
  const std::array<Operand, 10> all{{{"x", operands.x},
                                     {"bias", operands.bias},
                                     {"norm_scale", operands.norm_scale},
                                     {"norm_shift", operands.norm_shift},
                                     {"y", operands.y},
                                     {"pre", operands.pre},
                                     {"act", operands.act},
                                     {"idx", operands.idx},
                                     {"membrane_in", operands.membrane_in},
                                     {"membrane_out", operands.membrane_out}}};
  for (const Operand& operand : all) {
    if (!operand.data) continue;
    const auto first = reinterpret_cast<std::uintptr_t>(operand.data);
    const auto extent = static_cast<std::uintptr_t>(extent_bytes(operand.tensor).value());
    if (extent > 0 && begin < first + extent && first < begin + bytes)
      return invalid(fmt::format(
          "workspace and {} overlap in memory. Give the workspace its own memory.", operand.name));
  }
  return {};
}

}  // namespace convoy
