// general: one thread an output, loops that read like the definition.
//
// Two launches at most. `outputs` gives y and idx: a thread walks its pooling window and, for a
// neuron, runs every time step at each pixel of it. `pixels` gives what exists before the pool:
// pre, act and final membranes. It comes second, so that membranes may be updated in place.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/error.hpp"
#include "cuda/general.hpp"
#include "math/activation.hpp"

namespace convoy::cuda {
namespace {

struct GeneralParams {
  RunArgs args;
  const float* w;
  DType in, out;
  Activation act;
  float threshold;
  bool neuron, soft, hold, pooled;
  int t, n, h, wd, c, k, r, s, group_c, group_k, p, q, out_h, out_w;
  int sh, sw, top, left, dh, dw;
  int win_h, win_w, pool_sh, pool_sw, pool_top, pool_left, pool_dh, pool_dw;
};

__device__ float load(const void* data, DType type, Index i) {
  switch (type) {
    case DType::f16:
      return __half2float(static_cast<const __half*>(data)[i]);
    case DType::bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::u8:
      return static_cast<float>(static_cast<const std::uint8_t*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

/// Stores, and returns the value as the output type holds it.
__device__ float store(void* data, DType type, Index i, float v) {
  switch (type) {
    case DType::f16: {
      const __half rounded = __float2half_rn(v);
      if (data != nullptr) static_cast<__half*>(data)[i] = rounded;
      return __half2float(rounded);
    }
    case DType::bf16: {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(v);
      if (data != nullptr) static_cast<__nv_bfloat16*>(data)[i] = rounded;
      return __bfloat162float(rounded);
    }
    case DType::u8: {
      const float clipped = fminf(fmaxf(rintf(v), 0.0f), 255.0f);
      if (data != nullptr) static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(clipped);
      return clipped;
    }
    default:
      if (data != nullptr) static_cast<float*>(data)[i] = v;
      return v;
  }
}

/// conv + bias at one pixel of the convolution's plane.
__device__ float convolve(const GeneralParams& g, int t, int n, int p, int q, int k) {
  const Strides& at = g.args.x_stride;
  const Index image = (g.hold ? 0 : t * at.t) + n * at.n;
  const int first_c = k / g.group_k * g.group_c;
  const float* w = g.w + static_cast<Index>(k) * g.r * g.s * g.group_c;
  float sum = 0;
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s, w += g.group_c) {
      const int y = p * g.sh - g.top + r * g.dh, x = q * g.sw - g.left + s * g.dw;
      if (y < 0 || y >= g.h || x < 0 || x >= g.wd) continue;
      const Index pixel = image + y * at.h + x * at.w;
      for (int c = 0; c < g.group_c; ++c) {
        float v = load(g.args.x, g.in, pixel + (first_c + c) * at.c);
        if (g.args.norm_scale != nullptr)
          v = v * g.args.norm_scale[first_c + c] + g.args.norm_shift[first_c + c];
        sum = fmaf(v, w[c], sum);
      }
    }
  }
  return g.args.bias != nullptr ? sum + g.args.bias[k] : sum;
}

__device__ Index plane(const GeneralParams& g, int t, int n, int p, int q, int k) {
  return (((static_cast<Index>(t) * g.n + n) * g.p + p) * g.q + q) * g.k + k;
}

/// A unit before the pool, stepped through time: charge, fire, reset, or just the activation.
struct Cell {
  float membrane = 0, pre = 0;
  __device__ Cell(const GeneralParams& g, int n, int p, int q, int k) {
    if (g.args.membrane_in != nullptr) membrane = g.args.membrane_in[plane(g, 0, n, p, q, k)];
  }
  __device__ float step(const GeneralParams& g, float input) {
    if (!g.neuron) {
      pre = input;
      return math::activate(g.act.kind, g.act.a, g.act.b, input);
    }
    pre = math::charge(g.act.kind, g.act.a, membrane, input);
    const float spike = math::fire(pre, g.threshold);
    membrane = math::reset(pre, g.threshold, spike, g.soft);
    return spike;
  }
};

__global__ void outputs(const __grid_constant__ GeneralParams g) {
  const Index total = static_cast<Index>(g.n) * g.out_h * g.out_w * g.k;
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < total;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const int k = static_cast<int>(i % g.k), ow = static_cast<int>(i / g.k % g.out_w);
    const int oh = static_cast<int>(i / g.k / g.out_w % g.out_h),
              n = static_cast<int>(i / g.k / g.out_w / g.out_h);
    bool first = true;
    for (int a = 0; a < g.win_h; ++a) {
      for (int b = 0; b < g.win_w; ++b) {
        const int p = g.pooled ? oh * g.pool_sh - g.pool_top + a * g.pool_dh : oh;
        const int q = g.pooled ? ow * g.pool_sw - g.pool_left + b * g.pool_dw : ow;
        if (p < 0 || p >= g.p || q < 0 || q >= g.q) continue;
        Cell cell(g, n, p, q, k);
        float held = 0;
        for (int t = 0; t < g.t; ++t) {
          if (t == 0 || !g.hold) held = convolve(g, t, n, p, q, k);
          // The maximum so far is kept in y itself: one slot a time step, however many there are.
          const float v = store(nullptr, g.out, 0, cell.step(g, held));
          const Strides& at = g.args.y_stride;
          const Index to = t * at.t + n * at.n + oh * at.h + ow * at.w + k * at.c;
          if (first || math::beats(v, load(g.args.y, g.out, to))) {
            store(g.args.y, g.out, to, v);
            if (g.args.idx != nullptr) g.args.idx[to] = p * g.q + q;
          }
        }
        first = false;
      }
    }
  }
}

__global__ void pixels(const __grid_constant__ GeneralParams g) {
  const Index total = static_cast<Index>(g.n) * g.p * g.q * g.k;
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < total;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const int k = static_cast<int>(i % g.k), q = static_cast<int>(i / g.k % g.q);
    const int p = static_cast<int>(i / g.k / g.q % g.p), n = static_cast<int>(i / g.k / g.q / g.p);
    Cell cell(g, n, p, q, k);
    float held = 0;
    for (int t = 0; t < g.t; ++t) {
      if (t == 0 || !g.hold) held = convolve(g, t, n, p, q, k);
      const float v = cell.step(g, held);
      const Index to = plane(g, t, n, p, q, k);
      if (g.args.pre != nullptr) store(g.args.pre, g.out, to, cell.pre);
      if (g.args.act != nullptr) store(g.args.act, g.out, to, v);
    }
    if (g.args.membrane_out != nullptr)
      g.args.membrane_out[plane(g, 0, n, p, q, k)] = cell.membrane;
  }
}

}  // namespace

std::string general_launch(const Stage& stage, const RunArgs& args, const float* w,
                           cudaStream_t stream) noexcept {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  GeneralParams g{};
  g.args = args;
  g.w = w;
  g.in = stage.dtype;
  g.out = stage.output_dtype(true);
  g.act = stage.act;
  g.neuron = stage.act.is_neuron();
  g.threshold = stage.act.threshold();
  g.soft = stage.soft;
  g.hold = stage.hold;
  g.t = i(stage.t), g.n = i(args.n), g.h = i(stage.h), g.wd = i(stage.w), g.c = i(stage.c),
  g.k = i(stage.k);
  g.r = i(stage.r), g.s = i(stage.s), g.group_c = i(stage.c / stage.groups),
  g.group_k = i(stage.k / stage.groups);
  g.p = i(shapes.p), g.q = i(shapes.q), g.out_h = i(shapes.out_h), g.out_w = i(shapes.out_w);
  g.sh = i(stage.stride.h), g.sw = i(stage.stride.w), g.top = i(stage.pad.top),
  g.left = i(stage.pad.left);
  g.dh = i(stage.dil.h), g.dw = i(stage.dil.w);
  g.pooled = stage.pool.has_value();
  const Pool pool = stage.pool.value_or(Pool{.window = 1, .stride = 1});
  g.win_h = i(pool.window.h), g.win_w = i(pool.window.w), g.pool_sh = i(pool.stride.h),
  g.pool_sw = i(pool.stride.w);
  g.pool_top = i(pool.pad.h), g.pool_left = i(pool.pad.w), g.pool_dh = i(pool.dil.h),
  g.pool_dw = i(pool.dil.w);

  constexpr unsigned threads = 256;
  const auto blocks = [](Index total) {
    return static_cast<unsigned>(std::min<Index>((total + threads - 1) / threads, 1 << 20));
  };
  outputs<<<blocks(args.n * shapes.out_h * shapes.out_w * stage.k), threads, 0, stream>>>(g);
  if (args.pre != nullptr || args.act != nullptr || args.membrane_out != nullptr) {
    pixels<<<blocks(args.n * shapes.p * shapes.q * stage.k), threads, 0, stream>>>(g);
  }
  return describe(cudaGetLastError(), "launching general for " + to_text(stage));
}

}  // namespace convoy::cuda
