// winograd_input: a thread takes one or two channels of a tile's 6x6 inputs to its 36 transforms.
// winograd_output: a thread takes one or two filters' 36 sums of a tile to its 4x4 outputs, or 2x2
// behind a pool. Neighbouring threads have neighbouring channels. A tile whose outputs are not all
// finite is made again from the images by the definition: transforms of large values overflow, and
// a NaN or an infinity would spread over the tile.
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/post_ops.cuh"
#include "cuda/wrap/winograd_pass.hpp"
#include "cuda/wrap/winograd_thread.hpp"
#include "math/divide.hpp"
#include "math/index_map.hpp"

namespace convoy::cuda {
namespace {

namespace f4 = math::winograd4;
constexpr int threads = winograd_threads;

struct WinogradParams {
  WinogradTiles tiles;
  const float* x;
  const float* w;
  float *v, *m, *y;
  Strides x_stride, y_stride;
  math::ConvAxis<int> rows, columns;
  int c, k;
  int p, q;  // outputs that are wanted: before the pool, with one in whole windows
  bool pool;
  PostOps post;
  Index count;  // threads' work in all
};

template <int Lanes>
struct alignas(4 * Lanes) Lane {
  float v[Lanes];
};

template <int Lanes>
__global__ void __launch_bounds__(threads)
    winograd_input(const __grid_constant__ WinogradParams g) {
  const Index i = blockIdx.x * static_cast<Index>(threads) + threadIdx.x;
  const int of_tile = g.c / Lanes;
  ptx::grid_dependency_wait();
  if (i >= g.count) return;
  const WinogradTile tile(g.tiles, i / of_tile);
  const int c = winograd_channel(i, of_tile, Lanes);
  const int top = g.rows.at(tile.p, 0), left = g.columns.at(tile.q, 0);
  const float* const x =
      g.x + tile.image * g.x_stride.n + top * g.x_stride.h + left * g.x_stride.w + c;
  float v[Lanes][f4::inputs][f4::inputs];
#pragma unroll
  for (int r = 0; r < f4::inputs; ++r)
#pragma unroll
    for (int s = 0; s < f4::inputs; ++s) {
      Lane<Lanes> one{};
      if (g.rows.inside(top + r) && g.columns.inside(left + s))
        one = *reinterpret_cast<const Lane<Lanes>*>(x + r * g.x_stride.h + s * g.x_stride.w);
#pragma unroll
      for (int e = 0; e < Lanes; ++e) v[e][r][s] = one.v[e];
    }
#pragma unroll
  for (int e = 0; e < Lanes; ++e) {
#pragma unroll
    for (int s = 0; s < f4::inputs; ++s) {
      float line[f4::inputs], made[f4::inputs];
#pragma unroll
      for (int r = 0; r < f4::inputs; ++r) line[r] = v[e][r][s];
      f4::transform_input(line, made);
#pragma unroll
      for (int r = 0; r < f4::inputs; ++r) v[e][r][s] = made[r];
    }
#pragma unroll
    for (int r = 0; r < f4::inputs; ++r) {
      float made[f4::inputs];
      f4::transform_input(v[e][r], made);
#pragma unroll
      for (int s = 0; s < f4::inputs; ++s) v[e][r][s] = made[s];
    }
  }
  float* const to = g.v + winograd_first(tile.number, g.c) + c;
#pragma unroll
  for (int r = 0; r < f4::inputs; ++r)
#pragma unroll
    for (int s = 0; s < f4::inputs; ++s) {
      Lane<Lanes> one;
#pragma unroll
      for (int e = 0; e < Lanes; ++e) one.v[e] = v[e][r][s];
      *reinterpret_cast<Lane<Lanes>*>(to + winograd_product(r, s, g.c)) = one;
    }
}

/// Pools where asked to, and writes a tile's outputs of `Lanes` filters, before which nothing is
/// left to do. value(i, j, e): output (i, j) of the tile, activated.
template <int Lanes, class Value>
__device__ __forceinline__ void write_tile(const WinogradParams& g, const WinogradTile& tile, int k,
                                           const Value& value) {
  const Strides& at = g.y_stride;
  float* const y = g.y + tile.image * at.n + k;
  if (g.pool) {
#pragma unroll
    for (int i = 0; i < f4::outputs; i += 2)
#pragma unroll
      for (int j = 0; j < f4::outputs; j += 2) {
        if (tile.p + i >= g.p || tile.q + j >= g.q) continue;
        Lane<Lanes> one;
#pragma unroll
        for (int e = 0; e < Lanes; ++e)
          one.v[e] = ptx::max_nan(ptx::max_nan(value(i, j, e), value(i, j + 1, e)),
                                  ptx::max_nan(value(i + 1, j, e), value(i + 1, j + 1, e)));
        *reinterpret_cast<Lane<Lanes>*>(y + (tile.p + i) / 2 * at.h + (tile.q + j) / 2 * at.w) =
            one;
      }
    return;
  }
#pragma unroll
  for (int i = 0; i < f4::outputs; ++i)
#pragma unroll
    for (int j = 0; j < f4::outputs; ++j) {
      if (tile.p + i >= g.p || tile.q + j >= g.q) continue;
      Lane<Lanes> one;
#pragma unroll
      for (int e = 0; e < Lanes; ++e) one.v[e] = value(i, j, e);
      *reinterpret_cast<Lane<Lanes>*>(y + (tile.p + i) * at.h + (tile.q + j) * at.w) = one;
    }
}

/// One output by the definition: r, s, c in sequence.
__device__ __noinline__ float one_output(const WinogradParams& g, Index image, int p, int q,
                                         int k) {
  const float* const x = g.x + image * g.x_stride.n;
  const float* w = g.w + static_cast<Index>(k) * 9 * g.c;
  float sum = 0;
  for (int r = 0; r < 3; ++r) {
    for (int s = 0; s < 3; ++s, w += g.c) {
      const int h = g.rows.at(p, r), column = g.columns.at(q, s);
      if (!g.rows.inside(h) || !g.columns.inside(column)) continue;
      const float* const pixel = x + h * g.x_stride.h + column * g.x_stride.w;
      for (int c = 0; c < g.c; ++c) sum = fmaf(pixel[c], w[c], sum);
    }
  }
  return sum;
}

template <int Lanes>
__global__ void __launch_bounds__(threads)
    winograd_output(const __grid_constant__ WinogradParams g) {
  const Index i = blockIdx.x * static_cast<Index>(threads) + threadIdx.x;
  const int of_tile = g.k / Lanes;
  ptx::grid_dependency_wait();
  if (i >= g.count) return;
  const WinogradTile tile(g.tiles, i / of_tile);
  const int k = winograd_channel(i, of_tile, Lanes);
  const float* const m = g.m + winograd_first(tile.number, g.k) + k;
  float sums[Lanes][f4::inputs][f4::inputs];
#pragma unroll
  for (int r = 0; r < f4::inputs; ++r)
#pragma unroll
    for (int s = 0; s < f4::inputs; ++s) {
      const auto one = *reinterpret_cast<const Lane<Lanes>*>(m + winograd_product(r, s, g.k));
#pragma unroll
      for (int e = 0; e < Lanes; ++e) sums[e][r][s] = one.v[e];
    }
  float bias[Lanes];
  g.post.bias_of(k, Lanes, bias);
  float y[Lanes][f4::outputs][f4::outputs];
  float worst = 0;  // NaN where an output is not finite
#pragma unroll
  for (int e = 0; e < Lanes; ++e) {
    float half[f4::outputs][f4::inputs];
#pragma unroll
    for (int s = 0; s < f4::inputs; ++s) {
      float line[f4::inputs], made[f4::outputs];
#pragma unroll
      for (int r = 0; r < f4::inputs; ++r) line[r] = sums[e][r][s];
      f4::transform_output(line, made);
#pragma unroll
      for (int r = 0; r < f4::outputs; ++r) half[r][s] = made[r];
    }
#pragma unroll
    for (int r = 0; r < f4::outputs; ++r) {
      f4::transform_output(half[r], y[e][r]);
#pragma unroll
      for (int s = 0; s < f4::outputs; ++s) worst = fmaf(y[e][r][s], 0.0f, worst);
    }
  }
  if (worst != 0.0f) {
#pragma unroll 1
    for (int e = 0; e < Lanes; ++e) {
      const float its_bias = g.post.bias_of(k + e);
#pragma unroll 1
      for (int at = 0; at < f4::outputs * f4::outputs; at += g.pool ? 2 : 1) {
        const int row = at / f4::outputs, column = at % f4::outputs;
        if ((g.pool && row % 2 != 0) || tile.p + row >= g.p || tile.q + column >= g.q) continue;
        const auto value = [&](int below, int right) {
          const float sum =
              one_output(g, tile.image, tile.p + row + below, tile.q + column + right, k + e);
          return g.post.apply(sum, its_bias);
        };
        float v = value(0, 0);
        int p = tile.p + row, q = tile.q + column;
        if (g.pool) {
#pragma unroll 1
          for (int other = 1; other < 4; ++other) v = ptx::max_nan(v, value(other >> 1, other & 1));
          p /= 2, q /= 2;
        }
        g.y[tile.image * g.y_stride.n + p * g.y_stride.h + q * g.y_stride.w + k + e] = v;
      }
    }
    return;
  }
  write_tile<Lanes>(g, tile, k, [&](int row, int column, int e) {
    return g.post.apply(y[e][row][column], bias[e]);
  });
}

using WinogradKernel = void (*)(WinogradParams);

WinogradParams params_of(const Stage& stage, const WinogradRun& run) {
  const auto i = [](Index v) { return static_cast<int>(v); };
  WinogradParams g{};
  g.tiles = winograd_tiles(stage);
  g.x = static_cast<const float*>(run.args.x), g.y = static_cast<float*>(run.args.y);
  g.w = run.w, g.v = run.v, g.m = run.m;
  g.x_stride = run.args.x_stride, g.y_stride = run.args.y_stride;
  g.rows = math::conv_rows<int>(stage), g.columns = math::conv_columns<int>(stage);
  g.c = i(stage.c), g.k = i(stage.k);
  g.pool = stage.pool.has_value();
  const WinogradOutputs wanted = winograd_outputs(stage);
  g.p = i(wanted.p), g.q = i(wanted.q);
  g.post = post_ops_of(stage);
  g.post.bias = run.args.bias;
  return g;
}

bool in_pairs(const void* data, const Strides& at, int channels) {
  return reinterpret_cast<std::uintptr_t>(data) % 8 == 0 && at.n % 2 == 0 && at.h % 2 == 0 &&
         at.w % 2 == 0 && channels % 2 == 0;
}

std::string launch_pass(const char* what, const Stage& stage, WinogradKernel two,
                        WinogradKernel one, bool pairs, int channels, Index n, WinogradParams g,
                        bool overlap_previous, cudaStream_t stream) {
  g.count = n * g.tiles.of_image() * (channels / (pairs ? 2 : 1));
  const auto blocks = static_cast<int>(math::ceil_div(g.count, Index{threads}));
  const cudaError_t error = launch(
      pairs ? two : one,
      {.grid = blocks, .threads = threads, .stream = stream, .overlap_previous = overlap_previous},
      g);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, std::string("launching ") + what + " for " + to_text(stage));
}

}  // namespace

std::string winograd_ready() {
  for (const WinogradKernel kernel :
       {winograd_input<1>, winograd_input<2>, winograd_output<1>, winograd_output<2>})
    if (const cudaError_t error = load(kernel); error != cudaSuccess)
      return describe(error, "loading winograd4");
  return {};
}

std::string launch_winograd_input(const Stage& stage, const WinogradRun& run, bool overlap_previous,
                                  cudaStream_t stream) noexcept {
  const WinogradParams g = params_of(stage, run);
  return launch_pass("winograd_input", stage, winograd_input<2>, winograd_input<1>,
                     in_pairs(g.x, g.x_stride, g.c), g.c, run.args.n, g, overlap_previous, stream);
}

std::string launch_winograd_output(const Stage& stage, const WinogradRun& run,
                                   bool overlap_previous, cudaStream_t stream) noexcept {
  const WinogradParams g = params_of(stage, run);
  return launch_pass("winograd_output", stage, winograd_output<2>, winograd_output<1>,
                     in_pairs(g.y, g.y_stride, g.k), g.k, run.args.n, g, overlap_previous, stream);
}

}  // namespace convoy::cuda
