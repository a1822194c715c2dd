// Stage: derived shapes with overflow-checked arithmetic, and every reason why one is illegal.
#include "convoy/stage.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <tuple>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "core/size.hpp"

namespace convoy {

std::string_view to_text(DType dtype) {
  return facts_of(dtype).name;
}

std::size_t size_of(DType dtype) {
  return facts_of(dtype).bytes;
}

namespace {

// Sizes stay below 2^31 an axis so that kernels may index rows with 32 bits; products are checked.
constexpr Index largest_axis = (Index{1} << 31) - 1;

class Checker {
 public:
  explicit Checker(const Stage& stage) : stage_(stage.normalised()) {}

  std::vector<std::string> check(Shapes& shapes) {
    check_axes();
    if (problems_.empty()) check_conv(shapes);
    check_act();
    if (problems_.empty()) check_pool(shapes);
    if (problems_.empty()) check_products(shapes);
    return std::move(problems_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void size(const char* field, Index value, Index least = 1) {
    if (value < least || value > largest_axis)
      problem("{} is {}, expected {} to {}", field, value, least, largest_axis);
  }

  void check_types() {
    if (!facts_of(stage_.dtype).input)
      problem("the input type is {}, expected f32, f16, bf16 or u8", type_text(stage_.dtype));
    if (stage_.out && !facts_of(*stage_.out).output)
      problem("the output type is {}, expected f32, f16 or bf16", type_text(*stage_.out));
    if (stage_.layout > Layout::nchw)
      problem("the layout is number {}, expected nhwc or nchw", static_cast<int>(stage_.layout));
  }
  static std::string type_text(DType dtype) {
    return facts_of(dtype).known ? std::string(to_text(dtype))
                                 : fmt::format("number {}", static_cast<int>(dtype));
  }

  void check_axes() {
    size("n", stage_.n);
    size("h", stage_.h);
    size("w", stage_.w);
    size("c", stage_.c);
    size("k", stage_.k);
    size("r", stage_.r);
    size("s", stage_.s);
    size("stride height", stage_.stride.h);
    size("stride width", stage_.stride.w);
    size("dilation height", stage_.dil.h);
    size("dilation width", stage_.dil.w);
    size("pad top", stage_.pad.top, 0);
    size("pad left", stage_.pad.left, 0);
    size("pad bottom", stage_.pad.bottom, 0);
    size("pad right", stage_.pad.right, 0);
    size("groups", stage_.groups);
    size("t", stage_.t);
    check_types();
    if (!problems_.empty()) return;
    if (stage_.c % stage_.groups != 0)
      problem("groups is {}, expected a divisor of c = {}", stage_.groups, stage_.c);
    if (stage_.k % stage_.groups != 0)
      problem("groups is {}, expected a divisor of k = {}", stage_.groups, stage_.k);
  }

  Index conv_size(const char* axis, Index in, Index before, Index after, Index taps, Index dil,
                  Index stride) {
    const Index padded = in + before + after;
    const Index reach = dil * (taps - 1) + 1;  // both factors < 2^31
    if (reach > padded) {
      problem(
          "the filter reaches over {} pixels of {}, the padded image has {}; make the image or "
          "the padding larger",
          reach, axis, padded);
      return 0;
    }
    const Index out = (padded - reach) / stride + 1;
    if (out > largest_axis)
      problem("the {} of the convolution's output is {}, expected at most {}", axis, out,
              largest_axis);
    return out;
  }

  void check_conv(Shapes& shapes) {
    shapes.p = conv_size("height", stage_.h, stage_.pad.top, stage_.pad.bottom, stage_.r,
                         stage_.dil.h, stage_.stride.h);
    shapes.q = conv_size("width", stage_.w, stage_.pad.left, stage_.pad.right, stage_.s,
                         stage_.dil.w, stage_.stride.w);
    shapes.out_h = shapes.p;
    shapes.out_w = shapes.q;
  }

  void check_act() {
    const Activation& act = stage_.act;
    using Kind = Activation::Kind;
    if (act.kind > Kind::lif) {
      problem("the activation is number {}, expected one of Activation::Kind",
              static_cast<int>(act.kind));
      return;
    }
    // The text form does not have a parameter that means nothing.
    if (!act.consistent())
      problem(
          "the activation has a parameter of another kind; make it with relu, clip_to(lo, hi) and "
          "so on, and do not change its kind");
    if (act.kind == Kind::clip && !(act.lo() <= act.hi()))
      problem("clip({},{}): expected the lower bound first", act.lo(), act.hi());
    if (act.kind == Kind::leaky && !std::isfinite(act.slope()))
      problem("leaky({}): expected a finite slope", act.slope());
    if (act.is_neuron() && !std::isfinite(act.threshold()))
      problem("the threshold is {}, expected a finite number", act.threshold());
    if (act.kind == Kind::lif && !(std::isfinite(act.tau()) && act.tau() >= 1))
      problem("tau is {}, expected a finite number of at least 1", act.tau());
    if (!act.is_neuron()) {
      if (stage_.soft) problem("soft needs a neuron: add if(th) or lif(tau,th)");
      if (stage_.t != 1) problem("t{} needs a neuron: add if(th) or lif(tau,th)", stage_.t);
      if (stage_.hold) problem("hold needs a neuron: add if(th) or lif(tau,th)");
    }
    if (stage_.keep.idx && !stage_.pool) problem("keep(idx) needs a pool: add max2, for example");
  }

  Index pool_size(const char* axis, Index in, const Pool& pool, Index Extent::*side) {
    const Index window = pool.window.*side, stride = pool.stride.*side, pad = pool.pad.*side;
    if (2 * pad > window)
      problem("the pool's pad is {} in {}, expected at most half of its window, {}", pad, axis,
              window);
    const Index reach = pool.dil.*side * (window - 1) + 1;
    const Index room = in + 2 * pad - reach;
    if (room < 0 && !(pool.ceil && room > -stride)) {
      problem(
          "the pool reaches over {} pixels of {}, its padded image has {}; use a smaller window",
          reach, axis, in + 2 * pad);
      return 0;
    }
    if (!pool.ceil) return room / stride + 1;
    Index out = (room + stride - 1) / stride + 1;
    // PyTorch: the last window must start inside the image or the padding before it.
    if ((out - 1) * stride >= in + pad) --out;
    if (out < 1) problem("the pool has no window that starts inside the {} of {}", axis, in);
    return out;
  }

  void check_pool(Shapes& shapes) {
    if (!stage_.pool) return;
    const Pool& pool = *stage_.pool;
    size("the pool's window height", pool.window.h);
    size("the pool's window width", pool.window.w);
    size("the pool's stride height", pool.stride.h);
    size("the pool's stride width", pool.stride.w);
    size("the pool's pad height", pool.pad.h, 0);
    size("the pool's pad width", pool.pad.w, 0);
    size("the pool's dilation height", pool.dil.h);
    size("the pool's dilation width", pool.dil.w);
    if (!problems_.empty()) return;
    shapes.out_h = pool_size("height", shapes.p, pool, &Extent::h);
    shapes.out_w = pool_size("width", shapes.q, pool, &Extent::w);
    if (stage_.keep.idx && !(Size(shapes.p) * shapes.q).fits(largest_axis))
      problem("keep(idx): p*q is {}*{}, expected at most {} (idx is int32)", shapes.p, shapes.q,
              largest_axis);
  }

  [[gnu::cold, gnu::noinline]] void overflow(const char* what,
                                             std::initializer_list<Index> factors) {
    problem("{} overflows: {} is more than 2^60", what, fmt::join(factors, " x "));
  }

  // Planning asks for shapes some twenty times: products share their parts.
  void check_products(Shapes& shapes) {
    const Stage& s = stage_;
    const Index p = shapes.p, q = shapes.q, out_h = shapes.out_h, out_w = shapes.out_w;
    const Index c_group = s.c / s.groups, x_steps = s.hold ? 1 : s.t;
    const Size m = Size(s.n) * p * q, depth = Size(s.r) * s.s * c_group;
    if (!m.fits()) overflow("gemm_m", {s.n, p, q});
    if (!depth.fits()) overflow("gemm_k", {s.r, s.s, c_group});
    if (!problems_.empty()) return;
    const Size steps = Size(s.t) * s.n, macs = m * s.k * depth, w = depth * s.k;
    const Size x = Size(x_steps) * s.n * s.h * s.w * s.c, y = steps * out_h * out_w * s.k,
               pre = steps * p * q * s.k;
    if (!macs.fits()) overflow("the number of multiply-adds", {m.value(), s.k, depth.value()});
    if (!x.fits()) overflow("the size of x", {x_steps, s.n, s.h, s.w, s.c});
    if (!w.fits()) overflow("the size of w", {s.k, s.r, s.s, c_group});
    if (!y.fits()) overflow("the size of y", {s.t, s.n, out_h, out_w, s.k});
    if (!pre.fits()) overflow("the size of the convolution's output", {s.t, s.n, p, q, s.k});
    shapes.gemm_m = m.value();
    shapes.gemm_n = s.k;
    shapes.gemm_k = depth.value();
    shapes.macs = macs.value();
    shapes.x_elements = x.value();
    shapes.w_elements = w.value();
    shapes.y_elements = y.value();
    shapes.pre_elements = pre.value();
  }

  const Stage stage_;
  std::vector<std::string> problems_;
};

auto fields_of(const Stage& stage) {
  // Names every field: one more does not compile until it is compared, too.
  const auto& [dtype, n, h, w, c, k, r, s, stride, pad, dil, groups, layout, out, bias, norm, act,
               soft, t, hold, pool, keep, strict] = stage;
  return std::tie(dtype, n, h, w, c, k, r, s, stride, pad, dil, groups, layout, out, bias, norm,
                  act, soft, t, hold, pool, keep, strict);
}

}  // namespace

bool Stage::operator==(const Stage& other) const {
  const Stage a = normalised(), b = other.normalised();
  return fields_of(a) == fields_of(b);
}

std::vector<std::string> problems(const Stage& stage) {
  Shapes shapes;
  return Checker(stage).check(shapes);
}

Shapes shapes_of(const Stage& stage) {
  Shapes shapes;
  const auto found = Checker(stage).check(shapes);
  if (!found.empty()) throw Error(fmt::format("illegal stage: {}", fmt::join(found, "; ")));
  return shapes;
}

std::size_t hash_of(const Stage& stage) {
  return std::hash<std::string>{}(to_text(stage));
}

}  // namespace convoy
