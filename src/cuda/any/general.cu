// general: one thread an output, loops that read like the definition.
//
// Two launches at most. `outputs` gives y and idx: a thread walks its pooling window and, for a
// neuron, runs every time step at each pixel of it. `pixels` gives what exists before the pool:
// pre, act and final membranes. It comes second, so that membranes may be updated in place.
#include <algorithm>

#include "cuda/any/general.hpp"
#include "cuda/launch.hpp"
#include "cuda/post_ops.cuh"
#include "cuda/types.cuh"
#include "math/half.hpp"
#include "math/index_map.hpp"
#include "math/pool.hpp"

namespace convoy::cuda {
namespace {

// Threads of a CTA, and CTAs of a multiprocessor: loads are waited for, many threads hide it.
constexpr int of_cta = 256, ctas = 4;

struct GeneralParams {
  RunArgs args;
  const float* w;
  DType in, out;
  PostOps post;           // all but a neuron
  Activation::Kind kind;  // of a neuron
  float tau;
  float threshold;
  bool neuron, soft, hold, nchw;
  int r, s, group_c;  // an axis is shorter than 2^31
  // Positions may lie far outside the image: they, too, take 64 bits.
  Index t, n, k, group_k, p, q, out_h, out_w;
  math::ConvAxis<Index> in_rows, in_columns;
  math::PoolAxis rows, columns;
};

/// conv + bias at one pixel of the convolution's plane.
__device__ float convolve(const GeneralParams& g, Index t, Index n, Index p, Index q, Index k) {
  const Strides& at = g.args.x_stride;
  const Index image = (g.hold ? 0 : t * at.t) + n * at.n;
  const Index first_c = k / g.group_k * g.group_c;
  const float* w = g.w + k * g.r * g.s * g.group_c;
  float sum = 0;
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s, w += g.group_c) {
      const Index y = g.in_rows.at(p, r), x = g.in_columns.at(q, s);
      if (!g.in_rows.inside(y) || !g.in_columns.inside(x)) continue;
      const Index pixel = image + y * at.h + x * at.w;
      for (int c = 0; c < g.group_c; ++c) {
        float v = load(g.args.x, g.in, pixel + (first_c + c) * at.c);
        if (g.args.norm_scale != nullptr)
          v = math::normalise(v, g.args.norm_scale[first_c + c], g.args.norm_shift[first_c + c]);
        sum = fmaf(v, w[c], sum);
      }
    }
  }
  return g.post.biased(sum, g.post.bias_of(k));
}

__device__ Index plane(const GeneralParams& g, Index t, Index n, Index p, Index q, Index k) {
  return math::ConvPixels<Index>{g.p, g.q}.number({t * g.n + n, p, q}) * g.k + k;
}

/// In idx: shaped and laid out as y, but dense where y may be a slice.
__device__ Index dense_at(const GeneralParams& g, Index t, Index n, Index oh, Index ow, Index k) {
  const Index image = (t * g.n + n) * g.out_h * g.out_w * g.k;
  return image + (g.nchw ? (k * g.out_h + oh) * g.out_w + ow : (oh * g.out_w + ow) * g.k + k);
}

/// An output before the pool, stepped through time: charge, fire, reset, or just the activation.
struct Cell {
  float membrane = 0, pre = 0;
  __device__ Cell(const GeneralParams& g, Index n, Index p, Index q, Index k) {
    if (g.args.membrane_in != nullptr) membrane = g.args.membrane_in[plane(g, 0, n, p, q, k)];
  }
  __device__ float step(const GeneralParams& g, float input) {
    if (!g.neuron) {
      pre = input;
      return g.post.activated(input);
    }
    pre = math::charge(g.kind, g.tau, membrane, input);
    const float spike = math::fire(pre, g.threshold);
    membrane = math::reset(pre, g.threshold, spike, g.soft);
    return spike;
  }
};

__global__ void __launch_bounds__(of_cta, ctas) outputs(const __grid_constant__ GeneralParams g) {
  ptx::grid_dependency_wait();
  const Index total = g.n * g.out_h * g.out_w * g.k;
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < total;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const Index k = i % g.k, ow = i / g.k % g.out_w, oh = i / g.k / g.out_w % g.out_h,
                n = i / g.k / g.out_w / g.out_h;
    const Strides& at = g.args.y_stride;
    const auto each_step = [&](auto&& body) {
      for (Index t = 0; t < g.t; ++t)
        body(t, t * at.t + n * at.n + oh * at.h + ow * at.w + k * at.c,
             dense_at(g, t, n, oh, ow, k));
    };
    const Index top = g.rows.begin(oh), left = g.columns.begin(ow);
    // The maximum so far is kept in y itself: one slot a time step, however many there are. A
    // window of padding alone stays at -inf; its index may lie outside the plane.
    each_step([&](Index, Index to, Index dense) {
      store(g.args.y, g.out, to, -INFINITY);
      if (g.args.idx != nullptr) g.args.idx[dense] = static_cast<std::int32_t>(top * g.q + left);
    });
    for (Index p = top; p < g.rows.end(oh); p += g.rows.dil) {
      for (Index q = left; q < g.columns.end(ow); q += g.columns.dil) {
        Cell cell(g, n, p, q, k);
        float held = 0;
        each_step([&](Index t, Index to, Index dense) {
          if (t == 0 || !g.hold) held = convolve(g, t, n, p, q, k);
          const float v = store(nullptr, g.out, 0, cell.step(g, held)),
                      best = load(g.args.y, g.out, to);
          store(g.args.y, g.out, to, ptx::max_nan(v, best));
          if (g.args.idx != nullptr && math::beats(v, best))
            g.args.idx[dense] = static_cast<std::int32_t>(p * g.q + q);
        });
      }
    }
  }
}

__global__ void __launch_bounds__(of_cta, ctas) pixels(const __grid_constant__ GeneralParams g) {
  ptx::grid_dependency_wait();
  const Index total = g.n * g.p * g.q * g.k;
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < total;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const Index k = i % g.k;
    const auto [n, p, q] = math::ConvPixels<Index>{g.p, g.q}.at(i / g.k);
    Cell cell(g, n, p, q, k);
    float held = 0;
    for (Index t = 0; t < g.t; ++t) {
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

struct GeneralLaunch::Ready {
  Stage stage;
  Shapes shapes;
  LoadedKernel<GeneralParams> outputs, pixels;
  GeneralParams params;  // all but the operands, their number of images and the weights
  bool overlap;
};

GeneralLaunch::GeneralLaunch(const Stage& stage, bool overlap_previous) {
  const Shapes shapes = shapes_of(stage);
  GeneralParams g{};
  g.in = stage.dtype;
  g.out = stage.output_dtype(true);
  if (!is_output_type(g.out))
    throw Error("general: an output of " + std::string(to_text(g.out)) +
                ", expected f32, f16 or bf16");
  g.post = post_ops_before_neuron(stage);
  g.kind = stage.act.kind;
  g.tau = stage.act.tau();
  g.neuron = stage.act.is_neuron();
  g.threshold = stage.act.threshold();
  g.soft = stage.soft;
  g.hold = stage.hold;
  g.t = stage.t, g.k = stage.k;
  g.r = static_cast<int>(stage.r), g.s = static_cast<int>(stage.s);
  g.group_c = static_cast<int>(stage.c / stage.groups), g.group_k = stage.k / stage.groups;
  g.p = shapes.p, g.q = shapes.q, g.out_h = shapes.out_h, g.out_w = shapes.out_w;
  g.in_rows = math::conv_rows(stage), g.in_columns = math::conv_columns(stage);
  g.nchw = stage.layout == Layout::nchw;
  g.rows = math::pool_rows(stage, shapes.p);
  g.columns = math::pool_columns(stage, shapes.q);

  ready_ = std::make_unique<const Ready>(
      Ready{stage, shapes, {outputs, "general"}, {pixels, "general"}, g, overlap_previous});
}
GeneralLaunch::~GeneralLaunch() = default;

std::string GeneralLaunch::run(const RunArgs& args, const void* w,
                               cudaStream_t stream) const noexcept {
  const auto& [stage, shapes, outputs, pixels, ready, overlap] = *ready_;
  GeneralParams g = ready;
  g.w = static_cast<const float*>(w);
  g.args = args;
  g.post.bias = args.bias;
  g.n = args.n;
  const auto launch = [&, overlap = overlap](const LoadedKernel<GeneralParams>& kernel,
                                             Index threads) {
    const auto grid = static_cast<int>(std::min<Index>((threads + of_cta - 1) / of_cta, 1 << 20));
    return kernel.launch({grid, of_cta, 0, stream, overlap}, g);
  };
  cudaError_t error = launch(outputs, args.n * shapes.out_h * shapes.out_w * stage.k);
  const bool more = args.pre != nullptr || args.act != nullptr || args.membrane_out != nullptr;
  if (error == cudaSuccess && more) error = launch(pixels, args.n * shapes.p * shapes.q * stage.k);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching general for " + to_text(stage));
}

}  // namespace convoy::cuda
