#include "reference/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "math/activation.hpp"
#include "math/half.hpp"
#include "math/index_map.hpp"
#include "math/pool.hpp"
#include "reference/products.hpp"

namespace convoy::reference {
namespace {

std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

// Rounds after each step when the arithmetic is fp32; leaves doubles alone when it is real.
template <class Real>
double activate(const Activation& act, double value) {
  const Real v = static_cast<Real>(value);
  switch (act.kind) {
    case Activation::Kind::relu:
      return v < 0 ? 0 : v;
    case Activation::Kind::relu6:
      return v < 0 ? 0 : (v > 6 ? 6 : v);
    case Activation::Kind::clip: {
      const Real lo = static_cast<Real>(act.lo()), hi = static_cast<Real>(act.hi());
      const Real above = v < lo ? lo : v;
      return above > hi ? hi : above;
    }
    case Activation::Kind::leaky:
      return v < 0 ? static_cast<Real>(static_cast<Real>(act.slope()) * v) : v;
    case Activation::Kind::none:
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      break;
  }
  return v;
}

template <class Real>
double charge(const Activation& act, double membrane, double input) {
  const Real v = static_cast<Real>(membrane);
  const Real x = static_cast<Real>(input);
  if (act.kind == Activation::Kind::if_) return v + x;
  const Real change = (x - v) / static_cast<Real>(act.tau());
  return v + change;
}

// Element [t,n,h,w,c] of an image tensor in the stage's layout; a leading T is there or is not.
Index offset(const TensorDescriptor& x, Layout layout, Index t, Index n, Index h, Index w,
             Index c) {
  const int first = x.rank - 4;
  const auto stride = [&](int axis) { return x.stride[static_cast<std::size_t>(first + axis)]; };
  const Index step = first > 0 ? t * x.stride[0] : 0;
  if (layout == Layout::nchw)
    return step + n * stride(0) + c * stride(1) + h * stride(2) + w * stride(3);
  return step + n * stride(0) + h * stride(1) + w * stride(2) + c * stride(3);
}

}  // namespace

double spike_margin(double threshold) {
  return 1e-5 * std::max(1.0, std::abs(threshold));
}

Oracle::Oracle(const Stage& stage, const ConstTensorView& weights, const Operands& operands,
               Sum sum, Sequence sequence)
    : stage_(stage), shapes_(shapes_of(stage)), sum_(sum), sequence_(sequence) {
  const ConstTensorView& x = operands.x;
  const auto number = [](const ConstTensorView& view, Index i) {
    return static_cast<double>(math::load(view.dtype, view.data, i));
  };
  const DType multiplied = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
  x_.reserve(at(shapes_.x_elements));
  for (Index t = 0; t < (stage.hold ? 1 : stage.t); ++t)
    for (Index n = 0; n < stage.n; ++n)
      for (Index h = 0; h < stage.h; ++h)
        for (Index w = 0; w < stage.w; ++w)
          for (Index c = 0; c < stage.c; ++c) {
            double value = number(x, offset(x, stage.layout, t, n, h, w, c));
            if (stage.norm) {
              const double scale = number(operands.norm_scale, c * operands.norm_scale.stride[0]);
              const double shift = number(operands.norm_shift, c * operands.norm_shift.stride[0]);
              // In double the product is exact, so that this is the fused multiply-add of fp32.
              value = value * scale + shift;
              if (!in_double()) value = static_cast<float>(value);
              if (sum == Sum::sequential)
                value = math::round_to(multiplied, static_cast<float>(value));
            }
            x_.push_back(sum == Sum::magnitude ? std::abs(value) : value);
          }

  const Index filter = stage.r * stage.s * (stage.c / stage.groups);
  w_.resize(at(filter * stage.k));
  for (Index k = 0; k < stage.k; ++k)
    for (Index i = 0; i < filter; ++i)
      w_[at(i * stage.k + k)] = math::load(weights.dtype, weights.data, k * filter + i);
  if (stage.bias)
    for (Index k = 0; k < stage.k; ++k)
      bias_.push_back(number(operands.bias, k * operands.bias.stride[0]));
  if (sum == Sum::magnitude) {
    for (float& w : w_) w = std::abs(w);
    for (double& bias : bias_) bias = std::abs(bias);
  }
  if (operands.membrane_in)
    for (Index i = 0; i < operands.membrane_in.elements(); ++i)
      membrane_in_.push_back(number(operands.membrane_in, i));
}

Stage for_device(Stage stage, DeviceKind device) {
  const DType out = stage.output_dtype(device == DeviceKind::cuda);
  if (out != stage.output_dtype()) stage.out = out;
  return stage;
}

double Oracle::round(double value) const {
  if (in_double()) return value;
  return math::round_to(stage_.output_dtype(), static_cast<float>(value));
}

void Oracle::convolve(Index t, Pixel at_pixel, std::span<double> sums) const {
  const Stage& s = stage_;
  const math::ConvAxis<Index> rows = math::conv_rows(s), columns = math::conv_columns(s);
  const std::span<const double> x = x_;
  const std::span<const float> w = w_;
  const std::size_t weights = at(s.c / s.groups * s.k);  // of a tap
  std::vector<Tap> taps(at(s.r * s.s));
  for (Index r = 0; r < s.r; ++r)
    for (Index col = 0; col < s.s; ++col) {
      Tap& tap = taps[at(r * s.s + col)];
      tap.weights = w.subspan(at(r * s.s + col) * weights, weights);
      const Index h = rows.at(at_pixel.p, r), w_at = columns.at(at_pixel.q, col);
      if (!rows.inside(h) || !columns.inside(w_at)) continue;
      const Index pixel = ((t * s.n + at_pixel.n) * s.h + h) * s.w + w_at;
      tap.x = x.subspan(at(pixel * s.c), at(s.c));
    }

  std::fill(sums.begin(), sums.end(), 0.0);
  const bool sequential = sum_ == Sum::sequential;
  const Rounding rounded = sequence_.fma ? Rounding::sums : Rounding::both;
  add_products(taps, s.groups, sequential ? sequence_ : Sequence{.channels_last = true},
               sequential ? rounded : Rounding::none, sums.first(at(s.k)));
  if (sum_ == Sum::exact)
    for (double& sum : sums) sum = static_cast<float>(sum);
}

Trace Oracle::trace(Pixel at_pixel) const {
  const Stage& s = stage_;
  const bool real = in_double();
  Trace trace;
  trace.pre.resize(at(s.t * s.k));
  trace.act.resize(at(s.t * s.k));
  if (s.act.is_neuron()) trace.membrane.assign(at(s.k), 0.0);
  const math::ConvPixels<Index> pixels{shapes_.p, shapes_.q};
  const Index first = pixels.number({at_pixel.n, at_pixel.p, at_pixel.q}) * s.k;
  if (!membrane_in_.empty())
    trace.membrane.assign(&membrane_in_[at(first)], &membrane_in_[at(first)] + s.k);

  std::vector<double> sums(at(s.k));
  const double threshold = s.act.threshold();
  for (Index t = 0; t < s.t; ++t) {
    if (t == 0 || !s.hold) convolve(t, at_pixel, sums);
    for (Index k = 0; k < s.k; ++k) {
      double& pre = trace.pre[at(t * s.k + k)];
      double& act = trace.act[at(t * s.k + k)];
      pre = sums[at(k)];
      if (s.bias) pre = real ? pre + bias_[at(k)] : static_cast<float>(pre + bias_[at(k)]);
      if (sum_ == Sum::magnitude) {
        act = static_cast<double>(math::steepest(s.act)) * pre;
        continue;
      }
      if (!s.act.is_neuron()) {
        act = real ? activate<double>(s.act, pre) : activate<float>(s.act, pre);
        continue;
      }
      double& membrane = trace.membrane[at(k)];
      pre = real ? charge<double>(s.act, membrane, pre) : charge<float>(s.act, membrane, pre);
      act = pre >= threshold ? 1 : 0;
      membrane = pre;
      if (act != 0) membrane = s.soft ? pre - threshold : 0;
      if (!real) membrane = static_cast<float>(membrane);
    }
  }
  return trace;
}

// `plane` holds traces of pixels from (plane_row, plane_column) on.
Window Oracle::pool(Index i, Index j, const std::vector<Trace>& plane, Index plane_row,
                    Index plane_column, Index plane_width) const {
  const math::PoolAxis rows = math::pool_rows(stage_, shapes_.p);
  const math::PoolAxis columns = math::pool_columns(stage_, shapes_.q);
  Window window;
  window.y.assign(at(stage_.t * stage_.k), -std::numeric_limits<double>::infinity());
  const Index first = rows.begin(i) * shapes_.q + columns.begin(j);
  window.idx.assign(at(stage_.t * stage_.k), static_cast<std::int32_t>(first));
  for (Index p = rows.begin(i); p < rows.end(i); p += rows.dil)
    for (Index q = columns.begin(j); q < columns.end(j); q += columns.dil) {
      const Trace& trace = plane[at((p - plane_row) * plane_width + q - plane_column)];
      for (std::size_t tk = 0; tk < window.y.size(); ++tk) {
        const double value = round(trace.act[tk]);
        const bool beats = value > window.y[tk] || std::isnan(value);
        if (!beats) continue;
        window.y[tk] = value;
        window.idx[tk] = static_cast<std::int32_t>(p * shapes_.q + q);
      }
    }
  return window;
}

Window Oracle::window(Index n, Index i, Index j) const {
  const math::PoolAxis rows = math::pool_rows(stage_, shapes_.p);
  const math::PoolAxis columns = math::pool_columns(stage_, shapes_.q);
  const Index row = rows.begin(i);
  const Index column = columns.begin(j);
  const Index width = std::max<Index>(columns.end(j) - column, 0);
  std::vector<Trace> plane;
  for (Index p = row; p < rows.end(i); ++p)
    for (Index q = column; q < columns.end(j); ++q) plane.push_back(trace({n, p, q}));
  return pool(i, j, plane, row, column, width);
}

Outputs Oracle::all(Threads& threads) const {
  const Stage& s = stage_;
  Outputs out;
  out.y.resize(at(shapes_.y_elements));
  out.idx.resize(at(shapes_.y_elements));
  out.pre.resize(at(shapes_.pre_elements));
  out.act.resize(at(shapes_.pre_elements));
  if (s.act.is_neuron()) out.membrane.resize(at(shapes_.pre_elements / s.t));
  std::vector<Trace> plane(at(shapes_.p * shapes_.q));
  for (Index n = 0; n < s.n; ++n) {
    threads.for_each(shapes_.p, [&](Index p, int) {
      for (Index q = 0; q < shapes_.q; ++q) {
        const Trace& trace = plane[at(p * shapes_.q + q)] = this->trace({n, p, q});
        for (Index t = 0; t < s.t; ++t)
          for (Index k = 0; k < s.k; ++k) {
            const Index to = (((t * s.n + n) * shapes_.p + p) * shapes_.q + q) * s.k + k;
            out.pre[at(to)] = round(trace.pre[at(t * s.k + k)]);
            out.act[at(to)] = round(trace.act[at(t * s.k + k)]);
          }
        for (Index k = 0; k < static_cast<Index>(trace.membrane.size()); ++k)
          out.membrane[at(((n * shapes_.p + p) * shapes_.q + q) * s.k + k)] = trace.membrane[at(k)];
      }
    });
    threads.for_each(shapes_.out_h, [&](Index i, int) {
      for (Index j = 0; j < shapes_.out_w; ++j) {
        const Window window = pool(i, j, plane, 0, 0, shapes_.q);
        for (Index t = 0; t < s.t; ++t)
          for (Index k = 0; k < s.k; ++k) {
            const Index to = (((t * s.n + n) * shapes_.out_h + i) * shapes_.out_w + j) * s.k + k;
            out.y[at(to)] = window.y[at(t * s.k + k)];
            out.idx[at(to)] = window.idx[at(t * s.k + k)];
          }
      }
    });
  }
  return out;
}

}  // namespace convoy::reference
