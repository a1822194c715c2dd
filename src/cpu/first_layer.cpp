#include "cpu/first_layer.hpp"

#include <fmt/format.h>

#include "cpu/padded_rows.hpp"
#include "math/activation.hpp"

namespace convoy::cpu {
namespace {

// A 2×2 pool whose windows all lie inside the plane.
bool pools_fours(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return stage.pool->window == Extent{2} && stage.pool->stride == Extent{2} &&
         stage.pool->pad == Extent{0} && stage.pool->dil == Extent{1} &&
         2 * shapes.out_h <= shapes.p && 2 * shapes.out_w <= shapes.q;
}

}  // namespace

void refuse_first_layer(const Stage& stage, std::vector<std::string>& reasons) {
  if (stage.dtype != DType::f32 && stage.dtype != DType::u8)
    reasons.push_back(fmt::format("input {}: it reads f32 and u8", name(stage.dtype)));
  if (stage.output_dtype() != DType::f32)
    reasons.push_back(fmt::format("output {}: it writes f32", name(stage.output_dtype())));
  if (stage.layout != Layout::nhwc) reasons.emplace_back("layout nchw: it writes nhwc");
  if (stage.act.is_neuron()) reasons.emplace_back("a neuron: it applies element-wise activations");
  if (stage.keep.any()) reasons.emplace_back("keep: it writes the pooled output only");
  if (stage.pool && reasons.empty() && !pools_fours(stage))
    reasons.emplace_back(
        "pool: its tile is made of 2x2 windows, stride 2, wholly inside the plane");
  refuse_packing(stage, 2, reasons);
  if (stage.pool && !stage.act.is_neuron() && !math::may_pool_first(stage.act))
    reasons.emplace_back("leaky with a slope of 0 or less before a pool: it pools first");
}

double bytes_of_first_layer(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return static_cast<double>(shapes.x_elements) * static_cast<double>(size_of(stage.dtype)) +
         4.0 * static_cast<double>(shapes.w_elements + shapes.y_elements);
}

void copy_bias(const RunArgs& args, const Stage& stage, Index count, float* to) {
  for (Index k = 0; k < count; ++k) to[k] = args.bias && k < stage.k ? args.bias[k] : 0.0F;
}

}  // namespace convoy::cpu
