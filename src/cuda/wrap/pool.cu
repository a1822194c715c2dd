// pool: a thread takes eight channels of a pixel, or one where K is no multiple of eight.
// `activated` writes the activation of each value, `pooled` the maximum of each window and where it
// lies.
#include <algorithm>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/post_ops.cuh"
#include "cuda/types.cuh"
#include "cuda/wrap/pool.hpp"
#include "math/pool.hpp"

namespace convoy::cuda {
namespace {

constexpr int threads = 256;

struct PoolParams {
  PoolRun run;
  PostOps post;   // without a bias, which the plane has
  Index vectors;  // of a thread's channels, in all
  int p, q, k, out_h, out_w;
  math::PoolAxis rows, columns;
};

template <class T, int Lanes>
struct alignas(Lanes == 1 ? alignof(T) : 16) Channels {
  T v[Lanes];
};

template <class T>
__device__ __forceinline__ T activated_as(const PostOps& post, T v) {
  return Element<T>::round(post.activated(Element<T>::widen(v)));
}

template <class T, int Lanes>
__global__ void __launch_bounds__(threads) activated(const PoolParams g) {
  ptx::grid_dependency_wait();
  const Index i = blockIdx.x * static_cast<Index>(threads) + threadIdx.x;
  if (i >= g.vectors) return;
  using Values = Channels<T, Lanes>;
  Values values = static_cast<const Values*>(g.run.from)[i];
#pragma unroll
  for (int e = 0; e < Lanes; ++e) values.v[e] = activated_as(g.post, values.v[e]);
  static_cast<Values*>(g.run.act)[i] = values;
}

template <class T, int Lanes>
__global__ void __launch_bounds__(threads) pooled(const PoolParams g) {
  ptx::grid_dependency_wait();
  const Index i = blockIdx.x * static_cast<Index>(threads) + threadIdx.x;
  if (i >= g.vectors) return;
  using Values = Channels<T, Lanes>;
  const int of_row = g.k / Lanes, of_image = g.out_h * g.out_w * of_row;
  const Index n = i / of_image;
  const int rest = static_cast<int>(i - n * of_image), vector = rest % of_row,
            ow = rest / of_row % g.out_w, oh = rest / of_row / g.out_w;
  const Index image = n * g.p * g.q;
  // Of padding alone, a window may begin behind the plane; and one step may lead far out of it.
  const Index top = g.rows.begin(oh), left = g.columns.begin(ow);
  const Index bottom = g.rows.end(oh), right = g.columns.end(ow);
  float best[Lanes];
  int at[Lanes];
#pragma unroll
  for (int e = 0; e < Lanes; ++e) best[e] = -INFINITY, at[e] = static_cast<int>(top * g.q + left);
  const auto load = [&](Index p, Index q) {
    return static_cast<const Values*>(g.run.from)[(image + p * g.q + q) * of_row + vector];
  };
  const auto take = [&](const Values& values, Index p, Index q) {
#pragma unroll
    for (int e = 0; e < Lanes; ++e) {
      const float v =
          Element<T>::widen(g.run.activate ? activated_as(g.post, values.v[e]) : values.v[e]);
      if (math::beats(v, best[e])) at[e] = static_cast<int>(p * g.q + q);
      best[e] = ptx::max_nan(best[e], v);
    }
  };
  // Three of a row at a time, all on their way before the first is used.
  constexpr int together = 3;
  for (Index p = top; p < bottom; p += g.rows.dil) {
    for (Index q = left; q < right; q += together * g.columns.dil) {
      Values values[together];
#pragma unroll
      for (int j = 0; j < together; ++j)
        if (q + j * g.columns.dil < right) values[j] = load(p, q + j * g.columns.dil);
#pragma unroll
      for (int j = 0; j < together; ++j)
        if (q + j * g.columns.dil < right) take(values[j], p, q + j * g.columns.dil);
    }
  }
  Values y;
#pragma unroll
  for (int e = 0; e < Lanes; ++e) y.v[e] = Element<T>::round(best[e]);
  const Strides& to = g.run.y_stride;
  *reinterpret_cast<Values*>(static_cast<T*>(g.run.y) + n * to.n + oh * to.h + ow * to.w +
                             vector * Lanes) = y;
  if (g.run.idx == nullptr) return;
  if constexpr (Lanes == 8) {
    int4* const index = reinterpret_cast<int4*>(g.run.idx) + 2 * i;
    index[0] = make_int4(at[0], at[1], at[2], at[3]);
    index[1] = make_int4(at[4], at[5], at[6], at[7]);
  } else {
    g.run.idx[i] = at[0];
  }
}

template <class T>
cudaError_t launch_passes(PoolParams g, const Shapes& shapes, Index n, bool overlap_previous,
                          cudaStream_t stream) {
  const bool eight = g.k % 8 == 0;
  const auto pass = [&](void (*kernel)(PoolParams), Index outputs) {
    g.vectors = outputs / (eight ? 8 : 1);
    const auto blocks = static_cast<int>((g.vectors + threads - 1) / threads);
    return launch(kernel,
                  {.grid = blocks,
                   .threads = threads,
                   .stream = stream,
                   .overlap_previous = overlap_previous},
                  g);
  };
  if (g.run.act != nullptr) {
    const cudaError_t error =
        pass(eight ? activated<T, 8> : activated<T, 1>, n * shapes.p * shapes.q * g.k);
    if (error != cudaSuccess) return error;
    g.run.from = g.run.act;
    g.run.activate = false;
  }
  return pass(eight ? pooled<T, 8> : pooled<T, 1>, n * shapes.out_h * shapes.out_w * g.k);
}

template <class T>
cudaError_t load_passes() {
  for (const auto kernel : {activated<T, 8>, activated<T, 1>, pooled<T, 8>, pooled<T, 1>})
    if (const cudaError_t error = load(kernel); error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace

std::string pool_ready(DType type) {
  const auto load_them = for_float(type, [&]<class T>() { return &load_passes<T>; });
  const cudaError_t error = load_them == nullptr ? cudaErrorInvalidValue : load_them();
  return error == cudaSuccess ? std::string() : describe(error, "loading pool");
}

std::string pool_launch(const Stage& stage, const PoolRun& run, bool overlap_previous,
                        cudaStream_t stream) noexcept {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  PoolParams g{};
  g.run = run;
  g.post = post_ops_of(stage);
  g.p = i(shapes.p), g.q = i(shapes.q), g.k = i(stage.k);
  g.out_h = i(shapes.out_h), g.out_w = i(shapes.out_w);
  g.rows = math::pool_rows(stage, shapes.p);
  g.columns = math::pool_columns(stage, shapes.q);
  const auto passes =
      for_float(stage.output_dtype(true), [&]<class T>() { return &launch_passes<T>; });
  if (passes == nullptr) return "pool: " + to_text(stage) + " has no floating-point output";
  const cudaError_t error = passes(g, shapes, run.n, overlap_previous, stream);
  if (error == cudaSuccess) return {};
  return describe(error, "launching pool for " + to_text(stage));
}

}  // namespace convoy::cuda
