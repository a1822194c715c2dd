// general: one thread an output, loops that read like the definition.
//
// Two launches at most. `outputs` gives y and idx: a thread walks its pooling window and, for a
// neuron, runs every time step at each pixel of it. `pixels` gives what exists before the pool:
// pre, act and final membranes. It comes second, so that membranes may be updated in place.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/general.hpp"
#include "cuda/launch.hpp"
#include "cuda/ptx/sync.cuh"
#include "math/half.hpp"
#include "math/pool.hpp"

namespace convoy::cuda {
namespace {

struct GeneralParams {
  RunArgs args;
  const float* w;
  DType in, out;
  Activation act;
  float threshold;
  bool neuron, soft, hold, nchw;
  int t, n, h, wd, c, k, r, s, group_c, group_k, p, q, out_h, out_w;
  int sh, sw, top, left, dh, dw;
  math::PoolAxis rows, columns;
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
          v = math::normalise(v, g.args.norm_scale[first_c + c], g.args.norm_shift[first_c + c]);
        sum = fmaf(v, w[c], sum);
      }
    }
  }
  return g.args.bias != nullptr ? sum + g.args.bias[k] : sum;
}

__device__ Index plane(const GeneralParams& g, int t, int n, int p, int q, int k) {
  return (((static_cast<Index>(t) * g.n + n) * g.p + p) * g.q + q) * g.k + k;
}

/// In idx: shaped and laid out as y, but dense where y may be a slice.
__device__ Index dense_at(const GeneralParams& g, int t, int n, int oh, int ow, int k) {
  const Index image = (static_cast<Index>(t) * g.n + n) * g.out_h * g.out_w * g.k;
  return image + (g.nchw ? (static_cast<Index>(k) * g.out_h + oh) * g.out_w + ow
                         : (static_cast<Index>(oh) * g.out_w + ow) * g.k + k);
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
  ptx::grid_dependency_wait();
  const Index total = static_cast<Index>(g.n) * g.out_h * g.out_w * g.k;
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < total;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const int k = static_cast<int>(i % g.k), ow = static_cast<int>(i / g.k % g.out_w);
    const int oh = static_cast<int>(i / g.k / g.out_w % g.out_h),
              n = static_cast<int>(i / g.k / g.out_w / g.out_h);
    const Strides& at = g.args.y_stride;
    const auto each_step = [&](auto&& body) {
      for (int t = 0; t < g.t; ++t)
        body(t, t * at.t + n * at.n + oh * at.h + ow * at.w + k * at.c,
             dense_at(g, t, n, oh, ow, k));
    };
    const int top = static_cast<int>(g.rows.begin(oh)),
              left = static_cast<int>(g.columns.begin(ow));
    // The maximum so far is kept in y itself: one slot a time step, however many there are. A
    // window of padding alone stays at -inf.
    each_step([&](int, Index to, Index dense) {
      store(g.args.y, g.out, to, -INFINITY);
      if (g.args.idx != nullptr) g.args.idx[dense] = top * g.q + left;
    });
    for (int p = top; p < g.rows.end(oh); p += static_cast<int>(g.rows.dil)) {
      for (int q = left; q < g.columns.end(ow); q += static_cast<int>(g.columns.dil)) {
        Cell cell(g, n, p, q, k);
        float held = 0;
        each_step([&](int t, Index to, Index dense) {
          if (t == 0 || !g.hold) held = convolve(g, t, n, p, q, k);
          const float v = store(nullptr, g.out, 0, cell.step(g, held));
          if (!math::beats(v, load(g.args.y, g.out, to))) return;
          store(g.args.y, g.out, to, v);
          if (g.args.idx != nullptr) g.args.idx[dense] = p * g.q + q;
        });
      }
    }
  }
}

__global__ void pixels(const __grid_constant__ GeneralParams g) {
  ptx::grid_dependency_wait();
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

std::vector<std::string> general_refusals(const Stage& stage) {
  // Positions on an axis are ints; a filter's reach is added to them.
  constexpr Index most = 1 << 30;
  const Shapes shapes = shapes_of(stage);
  std::vector<std::string> why;
  const auto check_size = [&](const char* axis, Index size) {
    if (size > most)
      why.push_back(std::string(axis) + " = " + std::to_string(size) + ", at most 2^30 fit");
  };
  check_size("N", stage.n);
  check_size("C", stage.c);
  check_size("K", stage.k);
  check_size("T", stage.t);
  check_size("P*Q", shapes.p * shapes.q);
  check_size("H", stage.h + stage.pad.top + stage.pad.bottom + stage.dil.h * stage.r);
  check_size("W", stage.w + stage.pad.left + stage.pad.right + stage.dil.w * stage.s);
  return why;
}

struct GeneralLaunch::Ready {
  Stage stage;
  Shapes shapes;
  LoadedKernel<GeneralParams> outputs, pixels;
  GeneralParams params;  // all but the operands and their number of images
  bool overlap;
};

GeneralLaunch::GeneralLaunch(const Stage& stage, const float* w, bool overlap_previous) {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  GeneralParams g{};
  g.w = w;
  g.in = stage.dtype;
  g.out = stage.output_dtype(true);
  g.act = stage.act;
  g.neuron = stage.act.is_neuron();
  g.threshold = stage.act.threshold();
  g.soft = stage.soft;
  g.hold = stage.hold;
  g.t = i(stage.t), g.h = i(stage.h), g.wd = i(stage.w), g.c = i(stage.c), g.k = i(stage.k);
  g.r = i(stage.r), g.s = i(stage.s), g.group_c = i(stage.c / stage.groups),
  g.group_k = i(stage.k / stage.groups);
  g.p = i(shapes.p), g.q = i(shapes.q), g.out_h = i(shapes.out_h), g.out_w = i(shapes.out_w);
  g.sh = i(stage.stride.h), g.sw = i(stage.stride.w), g.top = i(stage.pad.top),
  g.left = i(stage.pad.left);
  g.dh = i(stage.dil.h), g.dw = i(stage.dil.w);
  g.nchw = stage.layout == Layout::nchw;
  g.rows = math::pool_rows(stage, shapes.p);
  g.columns = math::pool_columns(stage, shapes.q);

  ready_ = std::make_unique<const Ready>(
      Ready{stage, shapes, {outputs, "general"}, {pixels, "general"}, g, overlap_previous});
}
GeneralLaunch::~GeneralLaunch() = default;

std::string GeneralLaunch::run(const RunArgs& args, cudaStream_t stream) const noexcept {
  const auto& [stage, shapes, outputs, pixels, ready, overlap] = *ready_;
  GeneralParams g = ready;
  g.args = args;
  g.n = static_cast<int>(args.n);
  const auto launch = [&, overlap = overlap](const LoadedKernel<GeneralParams>& kernel,
                                             Index threads) {
    constexpr int of_cta = 256;
    const auto ctas = static_cast<int>(std::min<Index>((threads + of_cta - 1) / of_cta, 1 << 20));
    return kernel.launch({ctas, of_cta, 0, stream, overlap}, g);
  };
  cudaError_t error = launch(outputs, args.n * shapes.out_h * shapes.out_w * stage.k);
  const bool more = args.pre != nullptr || args.act != nullptr || args.membrane_out != nullptr;
  if (error == cudaSuccess && more) error = launch(pixels, args.n * shapes.p * shapes.q * stage.k);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching general for " + to_text(stage));
}

}  // namespace convoy::cuda
