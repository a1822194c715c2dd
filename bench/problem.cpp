#include "problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "math/half.hpp"

namespace convoy::bench {
namespace {

constexpr Index drawn = 1'048'583;  // a prime: no two rows or images are alike

// Values as `rounded` holds them.
void fill(Tensor& tensor, unsigned seed, float scale, DType rounded) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  const DType type = tensor.view().dtype;
  const Index count = tensor.elements();
  for (Index i = 0; i < std::min(count, drawn); ++i) {
    const float value = normal(random);
    if (type == DType::u8)
      tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random() >> 24);
    else
      math::store(type, tensor.view().data, i, math::round_to(rounded, value));
  }
  const std::size_t size = size_of(type);
  for (Index done = drawn; done < count; done += drawn)
    std::memcpy(tensor.data<char>() + static_cast<std::size_t>(done) * size, tensor.data<char>(),
                static_cast<std::size_t>(std::min(drawn, count - done)) * size);
}

Tensor filled(DType type, const std::vector<Index>& shape, unsigned seed, float scale,
              DType rounded = DType::f32) {
  Tensor tensor(type, shape);
  fill(tensor, seed, scale, rounded);
  return tensor;
}

}  // namespace

Problem::Problem(const Stage& stage) : y(stage.output_dtype(), y_shape(stage)) {
  // Weights as the kernels hold them, so that their rounding is no error of the kernel.
  const DType held = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
  x = filled(stage.dtype, x_shape(stage), 1, 1);
  w = filled(DType::f32, w_shape(stage), 2,
             1 / std::sqrt(static_cast<float>(shapes_of(stage).gemm_k)), held);
  operands.x = x;
  operands.y = y;
  if (stage.bias) operands.bias = bias = filled(DType::f32, {stage.k}, 3, 1);
  if (stage.norm) {
    operands.norm_scale = scale = filled(DType::f32, {stage.c}, 4, 1 / 64.0F);
    operands.norm_shift = shift = filled(DType::f32, {stage.c}, 5, 1);
  }
  if (stage.keep.pre) operands.pre = pre = Tensor(stage.output_dtype(), pre_shape(stage));
  if (stage.keep.act) operands.act = act = Tensor(stage.output_dtype(), pre_shape(stage));
  if (stage.keep.idx) operands.idx = idx = Tensor(DType::i32, y_shape(stage));
}

}  // namespace convoy::bench
