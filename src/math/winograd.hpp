// F(4x4, 3x3), Winograd's minimal filtering: a tile of 4x4 outputs from 6x6 inputs by 36 products.
// A 2-D transform is the 1-D one of each column, then of each row. Host and device.
//
// Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015, with other
// points.
#pragma once

#include <cmath>

#include "math/host_device.hpp"

namespace convoy::math::winograd4 {

/// Interpolation at 0, a, -a, b, -b and infinity. With these the rounding errors of an output
/// tile's four corners are alike, and the largest is the least of all points tried; all factors of
/// the input transform are exact in binary.
inline constexpr double point_a = 11.0 / 16, point_b = 23.0 / 16;

constexpr int outputs = 4, inputs = 6,
              points = inputs * inputs;  // of a tile, along an axis; in all

/// What Lagrange's interpolation divides by: in the output's transform instead of the filter's,
/// whose factors are then exact in binary.
inline constexpr double aa = point_a * point_a, bb = point_b * point_b;
inline constexpr double scale_0 = 1 / (aa * bb), scale_a = 1 / (2 * aa * (aa - bb)),
                        scale_b = 1 / (2 * bb * (bb - aa));

/// Six inputs in a line -> what the products take.
CONVOY_HD void transform_input(const float (&x)[inputs], float (&v)[inputs]) {
  constexpr auto a = static_cast<float>(point_a), b = static_cast<float>(point_b);
  constexpr auto a2 = static_cast<float>(aa), b2 = static_cast<float>(bb);
  constexpr auto sum = static_cast<float>(aa + bb), product = static_cast<float>(aa * bb);
  v[0] = fmaf(product, x[0], fmaf(-sum, x[2], x[4]));
  const float even_a = fmaf(-b2, x[2], x[4]), odd_a = fmaf(-b2, x[1], x[3]);
  const float even_b = fmaf(-a2, x[2], x[4]), odd_b = fmaf(-a2, x[1], x[3]);
  v[1] = fmaf(a, odd_a, even_a);
  v[2] = fmaf(-a, odd_a, even_a);
  v[3] = fmaf(b, odd_b, even_b);
  v[4] = fmaf(-b, odd_b, even_b);
  v[5] = fmaf(product, x[1], fmaf(-sum, x[3], x[5]));
}

/// Six sums of products in a line -> four outputs.
CONVOY_HD void transform_output(const float (&m)[inputs], float (&y)[outputs]) {
  const auto f = [](double v) { return static_cast<float>(v); };
  constexpr double a = point_a, b = point_b;
  const float even_a = m[1] + m[2], odd_a = m[1] - m[2];
  const float even_b = m[3] + m[4], odd_b = m[3] - m[4];
  y[0] = fmaf(f(scale_0), m[0], fmaf(f(scale_b), even_b, f(scale_a) * even_a));
  y[1] = fmaf(f(scale_b * b), odd_b, f(scale_a * a) * odd_a);
  y[2] = fmaf(f(scale_b * bb), even_b, f(scale_a * aa) * even_a);
  y[3] = fmaf(f(scale_b * bb * b), odd_b, fmaf(f(scale_a * aa * a), odd_a, m[5]));
}

/// Three taps in a line -> what the products take.
inline void transform_filter(const double (&w)[3], double (&u)[inputs]) {
  u[0] = w[0];
  u[1] = w[0] + point_a * w[1] + aa * w[2];
  u[2] = w[0] - point_a * w[1] + aa * w[2];
  u[3] = w[0] + point_b * w[1] + bb * w[2];
  u[4] = w[0] - point_b * w[1] + bb * w[2];
  u[5] = w[2];
}

}  // namespace convoy::math::winograd4
