// Rung 0: the definition. A thread computes one output, a multiply-add at a time.
//
// Every other rung runs this one where the stage has fewer than 16 channels or filters.
#pragma once

#include "teaching/ladder/ladder.cuh"

namespace convoy::cuda::teaching {

__global__ void ladder_0_scalar(const __grid_constant__ LadderParams g) {
  const Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x;
  if (i >= static_cast<Index>(g.m) * g.k) return;
  const int k = static_cast<int>(i % g.k), m = static_cast<int>(i / g.k);
  const auto [n, p, q] = g.in.at(m);
  const __half* w = g.w + static_cast<Index>(k) * g.depth();
  float sum = 0;
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s, w += g.channels) {
      const int h = g.rows.at(p, r), column = g.columns.at(q, s);
      if (!g.rows.inside(h) || !g.columns.inside(column)) continue;  // padding adds nothing
      const __half* x = g.x + n * g.x_image + h * g.x_row + column * g.x_pixel;
      for (int c = 0; c < g.c; ++c) sum = fmaf(__half2float(x[c]), __half2float(w[c]), sum);
    }
  }
  pixel_of_y(g, m)[k] = __float2half_rn(with_bias(g, k, sum));
}

}  // namespace convoy::cuda::teaching
