#include "plan/explain.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/dtype.hpp"

namespace convoy {
namespace {

std::string both(Extent extent) {
  return fmt::format("{} x {}", extent.h, extent.w);
}
std::string one_or_both(Extent extent) {
  return extent.h == extent.w ? fmt::format("{}", extent.h) : both(extent);
}

std::string_view activation_in_words(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none:
      break;
    case Activation::Kind::relu:
      return "ReLU";
    case Activation::Kind::relu6:
      return "ReLU6";
    case Activation::Kind::clip:
      return "clip";
    case Activation::Kind::leaky:
      return "leaky ReLU";
    case Activation::Kind::if_:
      return "integrate-and-fire neurons";
    case Activation::Kind::lif:
      return "leaky integrate-and-fire neurons";
  }
  return "";
}

std::string in_words(const Stage& s) {
  std::string text =
      fmt::format("{} {} of {} x {} pixels and {} {} ({}, {}); {} {} of {} x {}", s.n,
                  s.n == 1 ? "image" : "images", s.h, s.w, s.c, s.c == 1 ? "channel" : "channels",
                  to_text(s.dtype), s.layout == Layout::nhwc ? "NHWC" : "NCHW", s.k,
                  s.k == 1 ? "filter" : "filters", s.r, s.s);
  if (!(s.stride == Extent{1})) text += fmt::format(", stride {}", one_or_both(s.stride));
  if (s.pad.top == s.pad.left && s.pad == Padding{s.pad.top} && s.pad.top != 0)
    text += fmt::format(", padding {}", s.pad.top);
  else if (!(s.pad == Padding{0}))
    text += fmt::format(", padding {} above, {} left, {} below, {} right", s.pad.top, s.pad.left,
                        s.pad.bottom, s.pad.right);
  if (!(s.dil == Extent{1})) text += fmt::format(", dilation {}", one_or_both(s.dil));
  if (s.groups > 1) text += fmt::format(", in {} groups", s.groups);
  std::vector<std::string> riders;
  if (s.bias) riders.emplace_back("bias");
  if (s.act.kind != Activation::Kind::none) {
    std::string act(activation_in_words(s.act.kind));
    if (s.act.is_neuron())
      act += fmt::format(" over {} time {} ({} reset{})", s.t, s.t == 1 ? "step" : "steps",
                         s.soft ? "soft" : "hard", s.hold ? ", the same input in each" : "");
    riders.push_back(std::move(act));
  }
  if (s.pool) {
    const Pool& pool = *s.pool;
    std::string text_of_pool =
        fmt::format("max-pool {} with stride {}", both(pool.window), one_or_both(pool.stride));
    if (!(pool.pad == Extent{0})) text_of_pool += " and padding " + one_or_both(pool.pad);
    if (!(pool.dil == Extent{1})) text_of_pool += " and dilation " + one_or_both(pool.dil);
    if (pool.ceil) text_of_pool += ", sizes rounded up";
    riders.push_back(std::move(text_of_pool));
  }
  if (s.norm) text += "; the input is scaled and shifted by channel";
  for (std::size_t i = 0; i < riders.size(); ++i) text += (i ? ", " : "; then ") + riders[i];
  if (s.keep.any()) {
    std::vector<std::string_view> kept;
    if (s.keep.pre) kept.emplace_back("the values before the activation");
    if (s.keep.act) kept.emplace_back("the values before the pool");
    if (s.keep.idx) kept.emplace_back("the position of each maximum");
    text += fmt::format("; also kept: {}", fmt::join(kept, ", "));
  }
  return text;
}

using ExplainedSize = Explanation::Size;

/// One axis of the convolution, with its letters.
struct ConvAxis {
  const char *symbol, *meaning, *letter, *filter, *pads;
  Index size, before, after, dil, taps, stride;
};

ExplainedSize output_size(const ConvAxis& a, Index value) {
  return {a.symbol, a.meaning,
          fmt::format("floor(({} + {} - dilation*({} - 1) - 1) / stride) + 1", a.letter, a.pads,
                      a.filter),
          fmt::format("floor(({} + {} + {} - {}*({} - 1) - 1) / {}) + 1", a.size, a.before, a.after,
                      a.dil, a.taps, a.stride),
          value};
}

ExplainedSize pooled_size(const char* symbol, const char* meaning, const char* letter,
                          const Pool& pool, bool rows, Index size, Index value) {
  const Index window = rows ? pool.window.h : pool.window.w, pad = rows ? pool.pad.h : pool.pad.w;
  const Index dil = rows ? pool.dil.h : pool.dil.w, stride = rows ? pool.stride.h : pool.stride.w;
  const char* rounding = pool.ceil ? "ceil" : "floor";
  // PyTorch: with ceil, a last window that would begin in the padding is left out.
  return {symbol, meaning,
          fmt::format("{}(({} + 2*pad - dilation*(window - 1) - 1) / stride) + 1{}", rounding,
                      letter, pool.ceil ? ", less 1 if the last window would begin outside" : ""),
          fmt::format("{}(({} + 2*{} - {}*({} - 1) - 1) / {}) + 1", rounding, size, pad, dil,
                      window, stride),
          value};
}

std::vector<ExplainedSize> sizes_of(const Stage& s, const Shapes& shapes) {
  std::vector<ExplainedSize> sizes;
  sizes.push_back(output_size({"P", "rows after the convolution", "H", "R", "pad_top + pad_bottom",
                               s.h, s.pad.top, s.pad.bottom, s.dil.h, s.r, s.stride.h},
                              shapes.p));
  sizes.push_back(
      output_size({"Q", "columns after the convolution", "W", "S", "pad_left + pad_right", s.w,
                   s.pad.left, s.pad.right, s.dil.w, s.s, s.stride.w},
                  shapes.q));
  if (s.pool) {
    sizes.push_back(
        pooled_size("P'", "rows after the pool", "P", *s.pool, true, shapes.p, shapes.out_h));
    sizes.push_back(
        pooled_size("Q'", "columns after the pool", "Q", *s.pool, false, shapes.q, shapes.out_w));
  }
  sizes.push_back({"gemm_m", "output pixels", "N*P*Q",
                   fmt::format("{}*{}*{}", s.n, shapes.p, shapes.q), shapes.gemm_m});
  sizes.push_back({"gemm_n", "filters", "K", fmt::format("{}", s.k), shapes.gemm_n});
  sizes.push_back({"gemm_k", "products in an output", s.groups > 1 ? "R*S*C/groups" : "R*S*C",
                   s.groups > 1 ? fmt::format("{}*{}*{}/{}", s.r, s.s, s.c, s.groups)
                                : fmt::format("{}*{}*{}", s.r, s.s, s.c),
                   shapes.gemm_k});
  sizes.push_back({"MACs", "multiply-adds of a direct convolution", "gemm_m*gemm_n*gemm_k",
                   fmt::format("{}*{}*{}", shapes.gemm_m, shapes.gemm_n, shapes.gemm_k),
                   shapes.macs});
  return sizes;
}

std::vector<Explanation::Traffic> traffic_of(const Stage& s, const Shapes& shapes, DType out) {
  const auto bytes = [](Index elements, DType dtype) {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  };
  const bool neuron = s.act.is_neuron();
  // Held input: a chain, too, convolves once and feeds the result to every step.
  const double all_steps = neuron ? static_cast<double>(s.t) : 1;
  const double conv_steps = neuron && !s.hold ? all_steps : 1;
  const double plane = bytes(shapes.gemm_m * s.k, out),
               state = bytes(shapes.gemm_m * s.k, DType::f32);
  const double x = bytes(shapes.x_elements, s.dtype), y = bytes(shapes.y_elements, out);
  std::vector<Explanation::Traffic> lines;
  if (s.norm) {
    const double normalised = bytes(shapes.x_elements, DType::f32);
    lines.push_back({"x, read", x, x});
    lines.push_back({"normalised x, written and read", 0, 2 * normalised});
  } else {
    lines.push_back({"x, read", x, x});
  }
  const double w = bytes(shapes.w_elements, facts_of(s.dtype).weights);
  lines.push_back({"weights, read", w, w});
  const bool has_act = s.act.kind != Activation::Kind::none;
  // The convolution is y itself where nothing follows it.
  if (has_act || s.pool) {
    lines.push_back({s.bias ? "convolution + bias, written" : "convolution, written",
                     s.keep.pre ? plane * all_steps : 0, plane * conv_steps});
  } else if (s.keep.pre) {
    lines.push_back({"pre, written", plane, 0});
  }
  if (has_act) {
    lines.push_back({"activation, its input read", 0, plane * all_steps});
    if (s.pool || s.keep.act)
      lines.push_back({"activation, its output written", s.keep.act ? plane * all_steps : 0,
                       s.pool ? plane * all_steps : 0});
  } else if (s.keep.act) {
    lines.push_back({"act, written", plane, 0});
  }
  if (neuron) lines.push_back({"membranes, read and written", 2 * state, 2 * state * all_steps});
  if (s.pool) lines.push_back({"pool, its input read", 0, plane * all_steps});
  lines.push_back({"y, written", y, y});
  if (s.keep.idx)
    lines.push_back({"idx, written", bytes(shapes.y_elements, DType::i32),
                     bytes(shapes.y_elements, DType::i32)});
  return lines;
}

}  // namespace

double Explanation::fused_bytes() const {
  double sum = 0;
  for (const Traffic& line : traffic) sum += line.fused;
  return sum;
}
double Explanation::unfused_bytes() const {
  double sum = 0;
  for (const Traffic& line : traffic) sum += line.unfused;
  return sum;
}
bool Explanation::on_tensor_cores() const {
  return machine.tensor_flops > 0 && facts_of(stage.dtype).tensor_cores;
}
double Explanation::operations() const {
  const double steps = stage.act.is_neuron() && !stage.hold ? static_cast<double>(stage.t) : 1;
  return 2 * static_cast<double>(shapes.macs) * steps;
}

Explanation explain(const Stage& stage, const Machine& given, const Selection& selection) {
  Explanation e;
  const Machine machine = running(given, selection);
  e.threads_at_most = given.threads;
  e.stage = stage;
  e.sentence = in_words(stage);
  e.shapes = shapes_of(stage);
  e.sizes = sizes_of(stage, e.shapes);
  e.machine = machine;
  for (const Verdict& verdict : selection.verdicts) {
    const Kernel& kernel = *verdict.kernel;
    // Nobody was asked for a kernel to learn from.
    if (kernel.facts().rung != nullptr && !verdict.fits()) continue;
    Explanation::KernelLine line;
    line.kernel = kernel.name();
    line.arithmetic = kernel.arithmetic();
    line.exact = kernel.exact();
    line.refusals = verdict.refusals;
    if (verdict.fits()) {
      line.chosen = &kernel == &selection.kernel();
      const Tile& tile = line.chosen ? selection.tile.tile : verdict.tiles.front().tile;
      line.tile = tile.name;
      const Parts parts = part_of(kernel, stage, machine);
      line.parts = parts.count;
      line.predicted = cost_in_parts(kernel, stage, parts, tile, machine);
      if (line.chosen) e.parts = parts;
    }
    e.kernels.push_back(std::move(line));
  }
  e.arithmetic = selection.kernel().arithmetic();
  e.why_arithmetic = selection.why_arithmetic;
  e.kernel = selection.kernel().name();
  e.tile = selection.tile.tile.name;
  e.why_tile = selection.why_tile;
  e.predicted = cost_in_parts(selection.kernel(), stage, e.parts, selection.tile.tile, machine);
  if (selection.tuned) e.tuned_seconds = selection.tuned->seconds;
  e.traffic =
      traffic_of(stage, e.shapes, stage.output_dtype(machine.device.kind == DeviceKind::cuda));
  e.compute_floor =
      e.operations() / (e.on_tensor_cores() ? machine.tensor_flops : machine.peak_flops);
  e.memory_floor = e.fused_bytes() / machine.memory_bandwidth;
  return e;
}

Explanation explain(const Stage& stage, const PlanOptions& options, const ExplainRequest& request) {
  Machine machine = machine_for(options);
  std::string warning;
  const auto tuning = options.use_tuning ? user_tuning_cache(warning) : nullptr;
  const Selection selection = select(stage, machine, options, tuning.get());
  const int at_most = machine.threads;
  machine = running(machine, selection);
  if (request.measure) machine = measured(machine);
  Explanation e = explain(stage, machine, selection);
  e.threads_at_most = at_most;
  e.warning = warning;
  e.machine_measured = request.measure && machine.device.kind == DeviceKind::cpu;
  if (!request.measure) return e;

  // A look at a stage should not fill the memory or take minutes.
  constexpr double most_bytes = 4e9, most_seconds = 5;
  const double bytes = bytes_of_operands(stage);
  if (bytes > most_bytes || e.predicted.seconds > most_seconds) {
    e.not_measured = fmt::format(
        "one run takes {:.1f} GB and about {:.1f} s, more than the {:.0f} GB and "
        "{:.0f} s that explain allows itself",
        bytes * 1e-9, e.predicted.seconds, most_bytes * 1e-9, most_seconds);
    return e;
  }
  RandomOperands random(stage, 1, machine);
  for (Explanation::KernelLine& line : e.kernels) {
    if (!line.refusals.empty() || !(line.chosen || request.every_kernel)) continue;
    if (!line.chosen && line.predicted.seconds > most_seconds) continue;
    PlanOptions forced = options;
    forced.kernel = line.kernel;
    forced.tile = line.tile;
    const Plan plan(stage, random.weights, forced);
    line.measured = time_runs(plan, random, request.seconds);
    if (!line.chosen) continue;
    e.measured = line.measured;
    e.workspace_bytes = plan.workspace_bytes();
  }
  return e;
}

}  // namespace convoy
