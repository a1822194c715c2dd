#include "unfused.hpp"

#include <algorithm>
#include <limits>

#include "math/activation.hpp"
#include "math/pool.hpp"

namespace convoy::bench {
namespace {

Stage convolution_of(Stage stage) {
  if (stage.dtype != DType::f32 || stage.output_dtype() != DType::f32 ||
      stage.layout != Layout::nhwc || stage.act.is_neuron() || stage.keep.any())
    throw Error("--unfused: expected f32 NHWC stages without neuron or keep, found " +
                to_text(stage) + ".");
  if (!stage.pool && stage.act == no_act)
    throw Error("--unfused: " + to_text(stage) +
                " has neither activation nor pool, expected one of them to fuse.");
  stage.act = no_act;
  stage.pool.reset();
  return stage;
}

// The kind is a template argument, so that the loop has no branch and becomes vector code.
template <Activation::Kind kind>
void activate_row(const Activation& act, const float* from, float* to, Index count) {
  Activation known = act;
  known.kind = kind;
  for (Index i = 0; i < count; ++i) to[i] = math::activate(known, from[i]);
}

auto row_function(Activation::Kind kind) {
  using Kind = Activation::Kind;
  switch (kind) {
    case Kind::relu:
      return &activate_row<Kind::relu>;
    case Kind::relu6:
      return &activate_row<Kind::relu6>;
    case Kind::clip:
      return &activate_row<Kind::clip>;
    case Kind::leaky:
      return &activate_row<Kind::leaky>;
    case Kind::none:
    case Kind::if_:
    case Kind::lif:
      break;  // not reached: convolution_of refuses neurons, and run does nothing for none
  }
  return &activate_row<Kind::none>;
}

}  // namespace

UnfusedChain::UnfusedChain(const Stage& stage, const ConstTensorView& w, const PlanOptions& options)
    : stage_(stage),
      convolution_(convolution_of(stage), w, options),
      threads_(convolution_.threads()) {
  const Shapes shapes = shapes_of(stage);
  const std::vector<Index> plane{stage.n, shapes.p, shapes.q, stage.k};
  conv_ = Tensor(DType::f32, plane);
  if (stage.act != no_act) act_ = Tensor(DType::f32, plane);
}

void UnfusedChain::run(const Operands& operands) {
  Operands convolution = operands;
  convolution.y = conv_;
  convolution_.run(convolution).or_throw();
  if (stage_.act != no_act) activate();
  pool(operands.y);
}

void UnfusedChain::activate() {
  const auto& shape = conv_.view().shape;
  const Index rows = shape[0] * shape[1], row = shape[2] * shape[3];
  const auto apply = row_function(stage_.act.kind);
  threads_.for_each(rows, [&](Index i, int) {
    apply(stage_.act, conv_.data<float>() + i * row, act_.data<float>() + i * row, row);
  });
}

void UnfusedChain::pool(const TensorView& y) {
  const Tensor& plane = stage_.act != no_act ? act_ : conv_;
  const auto& shape = plane.view().shape;
  const Index p = shape[1], q = shape[2], k = shape[3];
  const math::PoolAxis down = math::pool_rows(stage_, p), across = math::pool_columns(stage_, q);
  const Index out_h = y.shape[1], out_w = y.shape[2];
  threads_.for_each(shape[0] * out_h, [&](Index task, int) {
    const Index image = task / out_h, row = task % out_h;
    for (Index column = 0; column < out_w; ++column) {
      float* to = static_cast<float*>(y.data) + ((image * out_h + row) * out_w + column) * k;
      std::fill_n(to, k, -std::numeric_limits<float>::infinity());
      for (Index i = down.begin(row); i < down.end(row); i += down.dil)
        for (Index j = across.begin(column); j < across.end(column); j += across.dil) {
          const float* from = plane.data<float>() + ((image * p + i) * q + j) * k;
          for (Index c = 0; c < k; ++c) to[c] = math::beats(from[c], to[c]) ? from[c] : to[c];
        }
    }
  });
}

}  // namespace convoy::bench
