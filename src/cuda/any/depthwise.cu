// depthwise: a filter of its own for each channel. No Tensor Cores: a few multiply-adds an element,
// so that reading x and writing y bounds it.
//
// A thread owns a vector of neighbouring channels, or one where they fill none, and a tile of Rows
// x Columns output pixels. It walks the input rows below the tile once, and each row that is loaded
// feeds every output row that it is a tap of; inputs are shared with the neighbouring threads
// through the L1. Sums are taken in the order r, s from +0, padding counts as zeros.
#include "cuda/any/depthwise.hpp"
#include "cuda/any/depthwise_thread.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/post_ops.cuh"
#include "cuda/types.cuh"
#include "math/index_map.hpp"

namespace convoy::cuda {
namespace {

struct DepthwiseParams {
  const void *x, *w;  // w: [R,S,C] in the type of x
  void* y;
  Index x_image, x_row, x_pixel, y_image, y_row, y_pixel;  // strides in elements
  math::ConvAxis<int> rows, columns;
  int c;
  int p, q;          // rows and columns of the convolution that are wanted
  int out_h, out_w;  // of y
  int r, s;
  PostOps post;
  bool pool;
  DepthwiseWalk walk;
};

/// Neighbouring channels, as they lie in memory: one load or store. Eight bytes of them, or one.
template <class T, int Count>
struct alignas(Count * sizeof(T)) Channels {
  static_assert(Count * sizeof(T) == depthwise_bytes);
  std::uint32_t words[depthwise_bytes / 4];
};
template <class T>
struct Channels<T, 1> {
  T value;
};
/// Of a thread, where C is a multiple of it.
template <class T>
constexpr int side_by_side = depthwise_bytes / static_cast<int>(sizeof(T));

template <class T, int Count>
__device__ __forceinline__ void widen(const Channels<T, Count>& from, float (&to)[Count]) {
  if constexpr (Count == 1) {
    to[0] = Element<T>::widen(from.value);
  } else {
    constexpr int a_word = Element<T>::a_word;
#pragma unroll
    for (int i = 0; i < depthwise_bytes / 4; ++i) {
      float some[a_word];
      Element<T>::unpack(from.words[i], some);
#pragma unroll
      for (int e = 0; e < a_word; ++e) to[a_word * i + e] = some[e];
    }
  }
}

template <class T, int Count>
__device__ __forceinline__ Channels<T, Count> rounded(const float (&from)[Count]) {
  if constexpr (Count == 1) {
    return {Element<T>::round(from[0])};
  } else {
    constexpr int a_word = Element<T>::a_word;
    Channels<T, Count> to;
#pragma unroll
    for (int i = 0; i < depthwise_bytes / 4; ++i) {
      float some[a_word];
#pragma unroll
      for (int e = 0; e < a_word; ++e) some[e] = from[a_word * i + e];
      to.words[i] = Element<T>::pack(some);
    }
    return to;
  }
}

using Place = DepthwisePlace;
template <int Count, int Rows, int Columns>
__device__ __forceinline__ Place place_of(const DepthwiseParams& g) {
  return depthwise_place(g.walk, static_cast<int>(threadIdx.x), static_cast<int>(blockIdx.x), Count,
                         Rows, Columns);
}

// Launches overlap from compute capability 9.0 on.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  ptx::grid_launch_dependents();
#endif
}
__device__ __forceinline__ void dependency_wait() {
#if __CUDA_ARCH__ >= 900
  ptx::grid_dependency_wait();
#endif
}

template <class T, int Count>
__device__ __forceinline__ Channels<T, Count> load_if(bool inside, const char* from) {
  Channels<T, Count> x{};
  if (inside) x = *reinterpret_cast<const Channels<T, Count>*>(from);
  return x;
}

template <class T, int Count>
__device__ __forceinline__ void add_products(const float (&x)[Count], const float (&w)[Count],
                                             Sum<T> (&sums)[Count]) {
#pragma unroll
  for (int e = 0; e < Count; ++e) sums[e] = fmaf(x[e], w[e], sums[e]);
}

template <class T, int Count>
__device__ __forceinline__ void store(const DepthwiseParams& g, const Place& at, int oh, int ow,
                                      const float (&values)[Count]) {
  if (oh >= g.out_h || ow >= g.out_w) return;
  T* const to =
      static_cast<T*>(g.y) + at.n * g.y_image + oh * g.y_row + ow * g.y_pixel + at.channel;
  *reinterpret_cast<Channels<T, Count>*>(to) = rounded<T, Count>(values);
}

/// Adds the bias, activates, pools 2x2 where asked to, rounds once and writes the tile.
template <class T, int Count, int Rows, int Columns>
__device__ __forceinline__ void finish(const DepthwiseParams& g, const Place& at,
                                       const float (&bias)[Count],
                                       Sum<T> (&sums)[Rows][Columns][Count]) {
  const auto each = [&](auto&& change) {
#pragma unroll
    for (auto& row : sums)
#pragma unroll
      for (auto& pixel : row)
#pragma unroll
        for (int e = 0; e < Count; ++e) pixel[e] = change(pixel[e], e);
  };
  each([&](float v, int e) { return g.post.biased(v, bias[e]); });
  g.post.with_form([&]<Form F>() {
    if constexpr (F != Form::identity) each([&](float v, int) { return formed<F>(g.post.act, v); });
  });
  each([&](float v, int) { return clamped(g.post.act, v); });
  if (!g.pool) {
#pragma unroll
    for (int i = 0; i < Rows; ++i)
#pragma unroll
      for (int j = 0; j < Columns; ++j) store<T, Count>(g, at, at.p + i, at.q + j, sums[i][j]);
    return;
  }
  if constexpr (Rows % 2 == 0 && Columns % 2 == 0) {
#pragma unroll
    for (int i = 0; i < Rows; i += 2) {
#pragma unroll
      for (int j = 0; j < Columns; j += 2) {
        const bool below = at.p + i + 1 < g.p, right = at.q + j + 1 < g.q;
#pragma unroll
        for (int e = 0; e < Count; ++e) {
          Sum<T>& best = sums[i][j][e];
          const auto take = [&](bool inside, float v) {
            if (inside) best = ptx::max_nan(best, v);
          };
          take(right, sums[i][j + 1][e]);
          take(below, sums[i + 1][j][e]);
          take(below && right, sums[i + 1][j + 1][e]);
        }
        store<T, Count>(g, at, (at.p + i) / 2, (at.q + j) / 2, sums[i][j]);
      }
    }
  }
}

/// Filters of R x R, the same stride on both axes, no dilation.
template <class T, int Count, int R, int Stride, int Rows, int Columns>
__global__ void __launch_bounds__(depthwise_threads)
    depthwise(const __grid_constant__ DepthwiseParams g) {
  constexpr int width = (Columns - 1) * Stride + R;
  launch_dependents();
  const Place at = place_of<Count, Rows, Columns>(g);
  if (at.channel >= g.c || at.p >= g.p || at.q >= g.q) return;

  const auto weights = [&](int r, int s) {
    return *reinterpret_cast<const Channels<T, Count>*>(static_cast<const T*>(g.w) +
                                                        (r * R + s) * g.c + at.channel);
  };
  // Before the kernel before has finished: they are the plan's own. Registers hold up to 5x5.
  constexpr bool early = R <= 5;
  Channels<T, Count> w[R][R];
#pragma unroll
  for (int r = 0; early && r < R; ++r)
#pragma unroll
    for (int s = 0; s < R; ++s) w[r][s] = weights(r, s);
  dependency_wait();
  float bias[Count];
  g.post.bias_of(at.channel, Count, bias);

  const int top = at.p * Stride - g.rows.pad, left = at.q * Stride - g.columns.pad;
  const char* row_at = static_cast<const char*>(g.x) +
                       (at.n * g.x_image + top * g.x_row + left * g.x_pixel + at.channel) *
                           static_cast<Index>(sizeof(T));
  const Index row_bytes = g.x_row * static_cast<Index>(sizeof(T)),
              pixel_bytes = g.x_pixel * static_cast<Index>(sizeof(T));
  unsigned columns_inside = 0;
#pragma unroll
  for (int j = 0; j < width; ++j)
    if (static_cast<unsigned>(left + j) < static_cast<unsigned>(g.columns.size))
      columns_inside |= 1u << j;

  Sum<T> sums[Rows][Columns][Count] = {};
#pragma unroll
  for (int i = 0; i < (Rows - 1) * Stride + R; ++i, row_at += row_bytes) {
    const unsigned inside =
        static_cast<unsigned>(top + i) < static_cast<unsigned>(g.rows.size) ? columns_inside : 0;
    float x[width][Count];
#pragma unroll
    for (int j = 0; j < width; ++j)
      widen(load_if<T, Count>((inside >> j & 1) != 0, row_at + j * pixel_bytes), x[j]);
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      const int r = i - row * Stride;
      if (r < 0 || r >= R) continue;
#pragma unroll
      for (int s = 0; s < R; ++s) {
        float tap[Count];
        widen(early ? w[r][s] : weights(r, s), tap);
#pragma unroll
        for (int column = 0; column < Columns; ++column)
          add_products<T>(x[column * Stride + s], tap, sums[row][column]);
      }
    }
  }
  finish<T>(g, at, bias, sums);
}

/// Any filter, stride and dilation; a tap at a time.
template <class T, int Count>
__global__ void __launch_bounds__(depthwise_threads)
    depthwise_any(const __grid_constant__ DepthwiseParams g) {
  constexpr int rows = 2, columns = 2;
  launch_dependents();
  const Place at = place_of<Count, rows, columns>(g);
  if (at.channel >= g.c || at.p >= g.p || at.q >= g.q) return;
  dependency_wait();
  float bias[Count];
  g.post.bias_of(at.channel, Count, bias);

  const T* const image = static_cast<const T*>(g.x) + at.n * g.x_image + at.channel;
  const T* tap_at = static_cast<const T*>(g.w) + at.channel;
  Sum<T> sums[rows][columns][Count] = {};
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s, tap_at += g.c) {
      float tap[Count];
      widen(*reinterpret_cast<const Channels<T, Count>*>(tap_at), tap);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
#pragma unroll
        for (int j = 0; j < columns; ++j) {
          const int row = g.rows.at(at.p + i, r), column = g.columns.at(at.q + j, s);
          const T* const pixel = image + row * g.x_row + column * g.x_pixel;
          float x[Count];
          widen(load_if<T, Count>(g.rows.inside(row) && g.columns.inside(column),
                                  reinterpret_cast<const char*>(pixel)),
                x);
          add_products<T>(x, tap, sums[i][j]);
        }
      }
    }
  }
  finish<T>(g, at, bias, sums);
}

using DepthwiseKernel = void (*)(DepthwiseParams);

template <class T, int Count, int R, int Stride>
DepthwiseKernel of_tile(const DepthwiseTile& tile) {
  if constexpr (Count > 1) {
    if constexpr (R == 3) {
      if (tile.columns == 4) return depthwise<T, Count, R, Stride, 2, 4>;
      if (tile.columns == 1) return depthwise<T, Count, R, Stride, 1, 1>;
    }
    if constexpr (R <= 5)
      if (tile.rows == 1) return depthwise<T, Count, R, Stride, 1, 2>;
  }
  return depthwise<T, Count, R, Stride, 2, 2>;
}
template <class T, int Count>
DepthwiseKernel find(const Stage& stage, const DepthwiseTile& tile) {
  if (!is_compiled_in(stage)) return depthwise_any<T, Count>;
  const bool dense = stage.stride == Extent(1);
  if (stage.r == 3) {
    return dense ? of_tile<T, Count, 3, 1>(tile) : of_tile<T, Count, 3, 2>(tile);
  }
  if (stage.r == 5) {
    return dense ? of_tile<T, Count, 5, 1>(tile) : of_tile<T, Count, 5, 2>(tile);
  }
  return of_tile<T, Count, 7, 1>(tile);
}
DepthwiseKernel find(const Stage& stage, const DepthwiseTile& tile) {
  return for_float(stage.dtype, [&]<class T>() {
    return depthwise_channels(stage) == 1 ? find<T, 1>(stage, tile)
                                          : find<T, side_by_side<T>>(stage, tile);
  });
}

}  // namespace

struct DepthwiseLaunch::Ready {
  Stage stage;
  LoadedKernel<DepthwiseParams> kernel;
  DepthwiseParams params;  // all but the operands
  Launch how;              // all but the stream, of one image
};

DepthwiseLaunch::DepthwiseLaunch(const Stage& stage, const DepthwiseTile& tile,
                                 bool overlap_previous) {
  const Shapes shapes = shapes_of(stage);
  const DepthwiseLayout layout = depthwise_layout(stage, tile);
  const auto i = [](Index v) { return static_cast<int>(v); };
  DepthwiseParams g{};
  g.c = i(stage.c);
  g.p = layout.rows, g.q = layout.columns;
  g.out_h = i(shapes.out_h), g.out_w = i(shapes.out_w);
  g.r = i(stage.r), g.s = i(stage.s);
  g.rows = math::conv_rows<int>(stage), g.columns = math::conv_columns<int>(stage);
  g.post = post_ops_of(stage);
  g.pool = stage.pool.has_value();
  g.walk = DepthwiseWalk(layout);
  const Launch how{.grid = layout.channel_blocks * layout.column_blocks * layout.row_blocks,
                   .threads = layout.lanes * layout.across * layout.down,
                   .overlap_previous = overlap_previous};
  ready_ = std::make_unique<const Ready>(Ready{stage, {find(stage, tile), "depthwise"}, g, how});
}
DepthwiseLaunch::~DepthwiseLaunch() = default;

std::string DepthwiseLaunch::run(const RunArgs& args, const void* w,
                                 cudaStream_t stream) const noexcept {
  const auto& [stage, kernel, ready, of_image] = *ready_;
  DepthwiseParams g = ready;
  g.x = args.x, g.w = w, g.post.bias = args.bias, g.y = args.y;
  g.x_image = args.x_stride.n, g.x_row = args.x_stride.h, g.x_pixel = args.x_stride.w;
  g.y_image = args.y_stride.n, g.y_row = args.y_stride.h, g.y_pixel = args.y_stride.w;
  Launch how = of_image;
  how.grid *= static_cast<int>(args.n);
  how.stream = stream;
  const cudaError_t error = kernel.launch(how, g);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching depthwise for " + to_text(stage));
}

}  // namespace convoy::cuda
