#include "inspect/kernel_map/index.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "math/index_map.hpp"

namespace convoy::inspect {
namespace {

void expect_within(const char* what, Index value, Index size, const char* of) {
  if (value >= 0 && value < size) return;
  throw Error(
      fmt::format("explain: {} = {} is outside, expected 0 to {} ({})", what, value, size - 1, of));
}

Index channels_of_group(const Stage& stage) {
  return stage.c / stage.groups;
}

math::ConvPixels<Index> pixels_of(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  return {shapes.p, shapes.q};
}
math::ConvTaps<Index> taps_of(const Stage& stage) {
  return {stage.s, channels_of_group(stage)};
}

}  // namespace

void expect_output(const Stage& stage, const OutputIndex& output) {
  const Shapes shapes = shapes_of(stage);
  expect_within("n", output.n, stage.n, "N");
  expect_within("p", output.p, shapes.p, "P, rows before the pool");
  expect_within("q", output.q, shapes.q, "Q, columns before the pool");
  expect_within("k", output.k, stage.k, "K");
}

Index x_byte(const Stage& stage, const InputElement& x) {
  const Index element = stage.layout == Layout::nhwc
                            ? ((x.n * stage.h + x.h) * stage.w + x.w) * stage.c + x.c
                            : ((x.n * stage.c + x.c) * stage.h + x.h) * stage.w + x.w;
  return element * x.bytes;
}

InputElement input_of(const Stage& stage, const OutputIndex& output, const TapIndex& tap) {
  const math::ConvAxis<Index> rows = math::conv_rows(stage), columns = math::conv_columns(stage);
  const Index group = output.k / (stage.k / stage.groups);
  InputElement x;
  x.n = output.n;
  x.h = rows.at(output.p, tap.r);
  x.w = columns.at(output.q, tap.s);
  x.c = group * channels_of_group(stage) + tap.c;
  x.bytes = static_cast<int>(size_of(stage.dtype));
  x.inside = rows.inside(x.h) && columns.inside(x.w);
  if (x.inside) x.byte = x_byte(stage, x);
  return x;
}

Product product_at(const Stage& stage, Index m, Index k, Index filter) {
  const Shapes shapes = shapes_of(stage);
  expect_within("m", m, shapes.gemm_m, "gemm_m = N*P*Q");
  expect_within("k", k, shapes.gemm_k, "gemm_k = R*S*C/groups");
  expect_within("the filter", filter, stage.k, "K");
  const math::ConvPixel<Index> pixel = pixels_of(stage).at(m);
  const math::ConvTap<Index> tap = taps_of(stage).at(k);
  Product product;
  product.m = m, product.k = k;
  product.output = {pixel.n, pixel.p, pixel.q, filter};
  product.tap = {tap.r, tap.s, tap.c};
  product.input = input_of(stage, product.output, product.tap);
  product.weight_byte = (filter * shapes.gemm_k + k) * product.input.bytes;
  return product;
}

Index gemm_row(const Stage& stage, const OutputIndex& output) {
  return pixels_of(stage).number({output.n, output.p, output.q});
}
Index gemm_column(const Stage& stage, const TapIndex& tap) {
  return taps_of(stage).number({tap.r, tap.s, tap.c});
}

std::optional<OutputIndex> output_that_reads(const Stage& stage, const InputElement& input,
                                             const TapIndex& tap, Index filter) {
  const Shapes shapes = shapes_of(stage);
  const Index p = math::conv_rows(stage).output_of(input.h, tap.r, shapes.p),
              q = math::conv_columns(stage).output_of(input.w, tap.s, shapes.q);
  if (p < 0 || q < 0) return std::nullopt;
  return OutputIndex{input.n, p, q, filter};
}

std::optional<Index> y_byte(const Stage& stage, const OutputIndex& output, DType y) {
  const Shapes shapes = shapes_of(stage);
  Index row = output.p, column = output.q;
  if (stage.pool) {
    // The first window that covers it; that is the only one where windows do not overlap.
    const Pool& pool = *stage.pool;
    const auto window_of = [](Index at, Index window, Index stride, Index pad, Index dil,
                              Index count) -> Index {
      const Index first = std::max<Index>(0, (at + pad - dil * (window - 1)) / stride);
      for (Index i = first; i < count && i * stride <= at + pad; ++i)
        if ((at + pad - i * stride) % dil == 0 && at + pad - i * stride <= dil * (window - 1))
          return i;
      return -1;
    };
    row = window_of(row, pool.window.h, pool.stride.h, pool.pad.h, pool.dil.h, shapes.out_h);
    column = window_of(column, pool.window.w, pool.stride.w, pool.pad.w, pool.dil.w, shapes.out_w);
    if (row < 0 || column < 0) return std::nullopt;
  }
  const Index element =
      stage.layout == Layout::nhwc
          ? ((output.n * shapes.out_h + row) * shapes.out_w + column) * stage.k + output.k
          : ((output.n * stage.k + output.k) * shapes.out_h + row) * shapes.out_w + column;
  return element * static_cast<Index>(size_of(y));
}

}  // namespace convoy::inspect
