// fma: a convolution as an implicit GEMM of fused multiply-adds, for every GPU and every type.
//
// A CTA makes a tile of rows (pixels, window by window) by filters. A step is 16 products of each
// output: the next step's pixels and weights come into registers while this one's are multiplied
// from shared memory, in which there are two of each. Pixels are widened to fp32 on the way, and
// what lies in the padding reads 0. Summation: r, s, c in sequence, as `general`, so that the bits
// are the same.
#include <algorithm>

#include "cuda/any/fma.hpp"
#include "cuda/any/fma_thread.hpp"
#include "cuda/launch.hpp"
#include "cuda/post_ops.cuh"
#include "cuda/types.cuh"
#include "math/half.hpp"

namespace convoy::cuda {
namespace {

/// Pixels and weights of any type are fp32 by the time that they are multiplied.
using FmaSum = Sum<float>;

struct FmaParams {
  FmaSizes at;
  const void* x;
  const float* w;
  const float *norm_scale, *norm_shift;  // or null
  void* y;
  Strides x_stride, y_stride;
  math::ConvAxis<int> in_rows, in_columns;
  DType in, out;
  PostOps post;
  bool wide_y;  // y takes stores of four channels
};

template <class Shape>
__device__ __forceinline__ void place_rows(const FmaParams& p, int m0, FmaShared<Shape>& shared) {
  for (int i = static_cast<int>(threadIdx.x); i < Shape::m; i += fma_threads) {
    // So far outside that no tap comes back in.
    FmaRow row{0, -(1 << 30), -(1 << 30)};
    Index y_at = -1;
    if (m0 + i < p.at.rows.m) {
      const math::ConvPixel<int> pixel = p.at.rows.pixel_of(m0 + i);
      row.begin_at(pixel, p.in_rows, p.in_columns, p.x_stride);
      const int bits = p.at.rows.window - 1;
      y_at = pixel.n * p.y_stride.n + (pixel.p >> bits) * p.y_stride.h +
             (pixel.q >> bits) * p.y_stride.w;
    }
    shared.rows[i] = row;
    shared.y_at[i] = y_at;
  }
}

/// What a thread brings of each step: one product of every eighth pixel, and fours of filters.
template <class Shape, bool Floats>
class FmaLoads {
 public:
  static constexpr int pixels = Shape::m * fma_depth / fma_threads, apart = fma_rows_between;
  static constexpr int fours = Shape::n / 4, weights = (fours * fma_depth - 1) / fma_threads + 1;

  __device__ __forceinline__ FmaLoads(const FmaParams& p, const FmaCta& cta,
                                      FmaShared<Shape>& shared)
      : p_(p), shared_(shared), group_c_(static_cast<Index>(cta.group) * p.at.group_c) {
    const int thread = static_cast<int>(threadIdx.x);
    const FmaCopies mine(thread);
    product_ = mine.product, row_ = mine.row;
    tap_ = math::ConvTaps<int>{p.at.taps.s, p.at.taps.c}.at(product_);
    first_four_ = thread;
    w_ = p.w + static_cast<Index>(cta.group) * p.at.steps * fma_depth * p.at.padded_k + cta.filter;
    left_ = p.at.padded_k - cta.filter;
  }

  /// The next step's weights. They are there before the kernel before has ended.
  __device__ __forceinline__ void load_weights() {
#pragma unroll
    for (int i = 0; i < weights; ++i) {
      const FmaFour four(first_four_ + i * fma_threads, fours);
      next_w_[i] = make_float4(0, 0, 0, 0);
      if (four.product < fma_depth && four.filter < left_)
        next_w_[i] = *reinterpret_cast<const float4*>(
            w_ + static_cast<Index>(four.product) * p_.at.padded_k + four.filter);
    }
    w_ += static_cast<Index>(fma_depth) * p_.at.padded_k;
  }
  __device__ __forceinline__ void load_pixels() {
    const FmaTapPlace tap(tap_, p_.at.r, group_c_, p_.in_rows, p_.in_columns, p_.x_stride);
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const FmaRow row = shared_.rows[row_ + i * apart];
      const bool inside = tap.row_inside(row.h) && tap.column_inside(row.w);
      const Index at = row.at + tap.at;
      float v = 0;
      if constexpr (Floats) {
        if (inside) v = static_cast<const float*>(p_.x)[at];
      } else if (inside) {
        v = load(p_.x, p_.in, at);
        if (p_.norm_scale != nullptr)
          v = math::normalise(v, p_.norm_scale[tap.channel], p_.norm_shift[tap.channel]);
      }
      next_x_[i] = v;
    }
    p_.at.taps.advance(tap_);
  }
  __device__ __forceinline__ void write(int to) {
#pragma unroll
    for (int i = 0; i < pixels; ++i) shared_.pixels[to][product_][row_ + i * apart] = next_x_[i];
#pragma unroll
    for (int i = 0; i < weights; ++i) {
      const FmaFour four(first_four_ + i * fma_threads, fours);
      if (four.product < fma_depth)
        *reinterpret_cast<float4*>(&shared_.filters[to][four.product][four.filter]) = next_w_[i];
    }
  }

 private:
  const FmaParams& p_;
  FmaShared<Shape>& shared_;
  Index group_c_;
  int product_, row_, first_four_, left_;
  math::ConvTap<int> tap_;
  const float* w_;
  float next_x_[pixels];
  float4 next_w_[weights];
};

template <int Tile, int Count>
__device__ __forceinline__ void read_fours(const float* from, int place, float (&to)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + fma_place(place, i, Tile, Count));
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

template <class Shape>
__device__ __forceinline__ void multiply(const FmaShared<Shape>& shared, int from, int row,
                                         int column,
                                         FmaSum (&sums)[Shape::thread_m][Shape::thread_n]) {
#pragma unroll
  for (int product = 0; product < fma_depth; ++product) {
    float a[Shape::thread_m], b[Shape::thread_n];
    read_fours<Shape::m>(shared.pixels[from][product], row, a);
    read_fours<Shape::n>(shared.filters[from][product], column, b);
#pragma unroll
    for (int i = 0; i < Shape::thread_m; ++i)
#pragma unroll
      for (int j = 0; j < Shape::thread_n; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
  }
}

/// Four neighbouring channels of an output, rounded; `left` of them exist.
__device__ __forceinline__ void store_four(const FmaParams& p, Index at, const float (&v)[4],
                                           int left) {
  if (!p.wide_y || left < 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < left) store(p.y, p.out, at + j * p.y_stride.c, v[j]);
    return;
  }
  const auto halves = [&]<class T>() {
    const uint2 packed{Element<T>::pack({v[0], v[1]}), Element<T>::pack({v[2], v[3]})};
    *reinterpret_cast<uint2*>(static_cast<T*>(p.y) + at) = packed;
  };
  switch (p.out) {
    case DType::f32:
      *reinterpret_cast<float4*>(static_cast<float*>(p.y) + at) =
          make_float4(v[0], v[1], v[2], v[3]);
      return;
    case DType::f16:
      return halves.template operator()<__half>();
    case DType::bf16:
      return halves.template operator()<__nv_bfloat16>();
    case DType::u8:
    case DType::i32:
      break;  // is_output_type
  }
}

/// Bias, activation, pool, rounding, store.
template <class Shape>
__device__ __forceinline__ void write(const FmaParams& p, const FmaCta& cta,
                                      const FmaShared<Shape>& shared, int row, int column,
                                      FmaSum (&sums)[Shape::thread_m][Shape::thread_n]) {
#pragma unroll
  for (int j0 = 0; j0 < Shape::thread_n; j0 += 4) {
    const int filter = cta.filter + fma_place(column, j0, Shape::n, Shape::thread_n);
    const int left = p.at.group_k - filter;
    if (left <= 0) continue;
    const Index channel = static_cast<Index>(cta.group) * p.at.group_k + filter;
    float bias[4];
    p.post.bias_of(channel, left, bias);
#pragma unroll
    for (int i0 = 0; i0 < Shape::thread_m; i0 += 4) {
      const Index* const to = shared.y_at + fma_place(row, i0, Shape::m, Shape::thread_m);
      float v[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) v[i][j] = p.post.apply(sums[i0 + i][j0 + j], bias[j]);
      if (p.at.rows.window > 1) {
#pragma unroll
        for (int i = 1; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) v[0][j] = ptx::max_nan(v[0][j], v[i][j]);
        if (to[0] >= 0) store_four(p, to[0] + channel * p.y_stride.c, v[0], left);
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (to[i] >= 0) store_four(p, to[i] + channel * p.y_stride.c, v[i], left);
    }
  }
}

template <class Shape, bool Floats>
__global__ void __launch_bounds__(fma_threads, Shape::ctas)
    fma(const __grid_constant__ FmaParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  FmaShared<Shape>& shared = *reinterpret_cast<FmaShared<Shape>*>(memory);
  const FmaCta cta(p.at, Shape::m, Shape::n, static_cast<int>(blockIdx.x));
  place_rows(p, cta.m, shared);
  FmaLoads<Shape, Floats> loads(p, cta, shared);
  loads.load_weights();
  __syncthreads();
  ptx::grid_dependency_wait();
  loads.load_pixels();
  loads.write(0);
  __syncthreads();

  const FmaPart part(static_cast<int>(threadIdx.x), Shape::across);
  FmaSum sums[Shape::thread_m][Shape::thread_n] = {};
  for (int step = 0; step < p.at.steps; ++step) {
    const bool more = step + 1 < p.at.steps;
    if (more) {
      loads.load_weights();
      loads.load_pixels();
    }
    multiply<Shape>(shared, fma_slot(step), part.row, part.column, sums);
    if (more) loads.write(fma_slot(~step));
    __syncthreads();
  }
  // Not earlier: if this launch has few CTAs, those of the next kernel would start on the idle
  // multiprocessors only, and stay badly spread.
#if __CUDA_ARCH__ >= 900
  ptx::grid_launch_dependents();
#endif
  write<Shape>(p, cta, shared, part.row, part.column, sums);
}

using FmaKernel = void (*)(FmaParams);

FmaKernel find(const FmaTile& tile, bool floats) {
  return with_fma_shape(tile, [&]<class Shape>() -> FmaKernel {
    return floats ? fma<Shape, true> : fma<Shape, false>;
  });
}
int shared_bytes(const FmaTile& tile) {
  return with_fma_shape(tile, [&]<class Shape>() -> int { return sizeof(FmaShared<Shape>); });
}

}  // namespace

struct FmaLaunch::Ready {
  Stage stage;
  LoadedKernel<FmaParams> kernel;
  FmaParams params;  // all but the operands
  Launch how;        // all but the stream and the grid
  int tile_m;
};

FmaLaunch::FmaLaunch(const Stage& stage, const FmaTile& tile, bool overlap_previous) {
  FmaParams p{};
  p.at = fma_sizes(stage, tile);
  p.in = stage.dtype, p.out = stage.output_dtype(true);
  if (!is_output_type(p.out))
    throw Error("fma: an output of " + std::string(to_text(p.out)) + ", expected f32, f16 or bf16");
  p.in_rows = math::conv_rows<int>(stage), p.in_columns = math::conv_columns<int>(stage);
  p.post = post_ops_of(stage);
  const Launch how{.threads = fma_threads,
                   .shared_bytes = shared_bytes(tile),
                   .overlap_previous = overlap_previous};
  const bool floats = stage.dtype == DType::f32 && !stage.norm;
  ready_ = std::make_unique<const Ready>(Ready{stage, {find(tile, floats), "fma"}, p, how, tile.m});
}
FmaLaunch::~FmaLaunch() = default;

std::string FmaLaunch::run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept {
  const auto& [stage, kernel, ready, ready_how, tile_m] = *ready_;
  FmaParams p = ready;
  p.x = args.x, p.w = static_cast<const float*>(w), p.post.bias = args.bias, p.y = args.y;
  p.norm_scale = args.norm_scale, p.norm_shift = args.norm_shift;
  p.x_stride = args.x_stride, p.y_stride = args.y_stride;
  const FmaRows& rows = p.at.rows;
  p.at.rows.m = static_cast<int>(args.n) * rows.down * rows.across * rows.window * rows.window;
  // Fours of channels lie together and on their size.
  const Strides& to = args.y_stride;
  const auto bytes = static_cast<std::uintptr_t>(4 * size_of(p.out));
  p.wide_y = to.c == 1 && p.at.group_k % 4 == 0 && to.n % 4 == 0 && to.h % 4 == 0 &&
             to.w % 4 == 0 && reinterpret_cast<std::uintptr_t>(args.y) % bytes == 0;
  Launch how = ready_how;
  how.grid = (p.at.rows.m + tile_m - 1) / tile_m * p.at.n_tiles;
  how.stream = stream;
  const cudaError_t error = kernel.launch(how, p);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching fma for " + to_text(stage));
}

}  // namespace convoy::cuda
