// few_filters: up to eight filters over many channels in f32. No Tensor Cores: a few multiply-adds
// an element, so that reading x is what it is made for.
//
// The lanes of a warp, or of a half or a quarter of it, share a strip of eight output pixels. Each
// has channels of its own, loads them for the strip's pixels and multiplies them by the filters;
// the taps of a filter's row share what is loaded where they can. Sums of a lane become sums of the
// strip by shuffles: each exchange halves a lane's pixels, until it holds one. What neighbouring
// rows read again comes from the L1, and so do the weights.
//
// Order of summation: of a lane, from +0, blocks of channels, taps, its channels of the block,
// padding as zeros; then lanes l and l ^ 1, l ^ 2, l ^ 4 and so on. A term is thus added C*R*S /
// lanes + log2(lanes) times, with C as multiple of a block.
#include <bit>

#include "cuda/any/few_filters.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/post_ops.cuh"
#include "math/index_map.hpp"

namespace convoy::cuda {
namespace {

constexpr int strip_pixels = few_filters_pixels;

struct FewFiltersParams {
  const float *x, *w;
  float* y;
  Index x_image, x_row, x_pixel, y_image, y_row, y_pixel;  // strides in elements
  math::ConvAxis<int> rows, columns;
  int c, k, r, s;
  int q;                             // columns of the output
  unsigned out_rows, strips, total;  // strips: of a row
  int lanes, log_lanes, blocks;
  PostOps post;
};

/// Channels of a lane, as they lie in memory: one load.
template <int Vector>
struct alignas(4 * Vector) Lane {
  float v[Vector];
};
template <int Vector>
__device__ __forceinline__ Lane<Vector> load_lane_if(bool inside, const float* from) {
  Lane<Vector> x{};
  if (inside) x = *reinterpret_cast<const Lane<Vector>*>(from);
  return x;
}

/// The products of one tap: `pixels` of the strip by the lane's channels of K filters.
template <int K, int Vector>
__device__ __forceinline__ void add_tap(const Lane<Vector>* pixels, const float* w,
                                        float (&sums)[strip_pixels][K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const auto filter = *reinterpret_cast<const Lane<Vector>*>(w + k * 32 * Vector);
#pragma unroll
    for (int e = 0; e < Vector; ++e)
#pragma unroll
      for (int i = 0; i < strip_pixels; ++i)
        sums[i][k] = fmaf(pixels[i].v[e], filter.v[e], sums[i][k]);
  }
}

/// Each lane gives away half of its pixels and gets the other lane's part of those that it keeps.
template <int Left, int K>
__device__ __forceinline__ void exchange(int lane, int offset, float (&sums)[strip_pixels][K]) {
  const bool upper = (lane & offset) != 0;
#pragma unroll
  for (int i = 0; i < Left / 2; ++i) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const float low = sums[i][k], high = sums[i + Left / 2][k];
      sums[i][k] = (upper ? high : low) + __shfl_xor_sync(0xFFFFFFFF, upper ? low : high, offset);
    }
  }
}

/// S: a filter's width, where the strides and the dilation along a row are 1; 0: any.
template <int K, int S, int Vector>
__global__ void __launch_bounds__(few_filters_threads(K), 1)
    few_filters(const __grid_constant__ FewFiltersParams g) {
  const int lane = static_cast<int>(threadIdx.x) & (g.lanes - 1), of_block = g.lanes * Vector;
  const unsigned strip = few_filters_strip(blockIdx.x, blockDim.x, threadIdx.x, g.log_lanes);
  // Lanes without a strip stay for the shuffles.
  const bool mine = strip < g.total;
  const FewFiltersPlace at = few_filters_place(mine ? strip : 0, g.out_rows, g.strips);
  const int left = g.columns.at(at.q, 0);
  const float* const image = g.x + at.n * g.x_image + left * g.x_pixel;
  const float* w = g.w + lane * Vector;
  ptx::grid_dependency_wait();

  constexpr int of_tap = K * 32 * Vector;  // weights
  constexpr int width = strip_pixels + (S > 0 ? S - 1 : 0);
  unsigned columns_inside = 0;
#pragma unroll
  for (int j = 0; S > 0 && j < width; ++j)
    if (g.columns.inside(left + j)) columns_inside |= 1u << j;
  asm volatile("" : "+r"(columns_inside));  // else it is made anew in each turn of the loop

  float sums[strip_pixels][K] = {};
  for (int c = lane * Vector; c < g.blocks * of_block; c += of_block) {
    for (int r = 0; r < g.r; ++r) {
      const int row = g.rows.at(at.p, r);
      const bool inside = mine && c < g.c && g.rows.inside(row);
      const float* const from = image + row * g.x_row + c;
      Lane<Vector> x[width];
      if constexpr (S > 0) {
        const unsigned here = inside ? columns_inside : 0;
        const float* pixel = from;
#pragma unroll
        for (int j = 0; j < width; ++j, pixel += g.x_pixel)
          x[j] = load_lane_if<Vector>((here >> j & 1) != 0, pixel);
#pragma unroll
        for (int s = 0; s < S; ++s, w += of_tap) add_tap<K, Vector>(x + s, w, sums);
      } else {
        for (int s = 0; s < g.s; ++s, w += of_tap) {
#pragma unroll
          for (int i = 0; i < strip_pixels; ++i) {
            const int column = i * g.columns.stride + s * g.columns.dil;
            x[i] = load_lane_if<Vector>(inside && g.columns.inside(left + column),
                                        from + column * g.x_pixel);
          }
          add_tap<K, Vector>(x, w, sums);
        }
      }
    }
  }
#if __CUDA_ARCH__ >= 900
  ptx::grid_launch_dependents();
#endif

  exchange<8>(lane, 1, sums);
  exchange<4>(lane, 2, sums);
  exchange<2>(lane, 4, sums);
  for (int offset = few_filters_least_lanes; offset < g.lanes; offset *= 2) {
#pragma unroll
    for (int k = 0; k < K; ++k) sums[0][k] += __shfl_xor_sync(0xFFFFFFFF, sums[0][k], offset);
  }
  const int q = at.q + few_filters_pixel_of(lane);
  if (!mine || lane >= few_filters_least_lanes || q >= g.q) return;
  float* const y = g.y + at.n * g.y_image + at.p * g.y_row + q * g.y_pixel;
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (k < g.k) y[k] = g.post.apply(sums[0][k], g.post.bias_of(k));
}

using FewFiltersKernel = void (*)(FewFiltersParams);

template <int K>
FewFiltersKernel find(const FewFiltersLayout& layout) {
  if (layout.channels.vector == 1) return few_filters<K, 0, 1>;
  if constexpr (K <= 4) {
    if (layout.row_taps == 5) return few_filters<K, 5, 4>;
    if (layout.row_taps == 7) return few_filters<K, 7, 4>;
  }
  return layout.row_taps == 3 ? few_filters<K, 3, 4> : few_filters<K, 0, 4>;
}
FewFiltersKernel find(const FewFiltersLayout& layout) {
  switch (layout.filters) {
    case 1:
      return find<1>(layout);
    case 2:
      return find<2>(layout);
    case 3:
      return find<3>(layout);
    case 4:
      return find<4>(layout);
    case 6:
      return find<6>(layout);
    case 8:
      return find<8>(layout);
    default:
      return nullptr;
  }
}

}  // namespace

struct FewFiltersLaunch::Ready {
  Stage stage;
  FewFiltersLayout layout;
  LoadedKernel<FewFiltersParams> kernel;
  FewFiltersParams params;  // all but the operands and their number of images
  Launch how;               // all but the stream and the grid
};

FewFiltersLaunch::FewFiltersLaunch(const Stage& stage, int threads, bool overlap_previous) {
  const FewFiltersLayout layout = few_filters_layout(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  FewFiltersParams g{};
  g.rows = math::conv_rows<int>(stage), g.columns = math::conv_columns<int>(stage);
  g.c = i(stage.c), g.k = i(stage.k), g.r = i(stage.r), g.s = i(stage.s);
  g.q = i(layout.q);
  g.out_rows = static_cast<unsigned>(layout.p), g.strips = static_cast<unsigned>(layout.strips);
  g.lanes = layout.channels.lanes, g.blocks = layout.channels.blocks;
  g.log_lanes = std::countr_zero(static_cast<unsigned>(g.lanes));
  g.post = post_ops_of(stage);
  ready_ = std::make_unique<const Ready>(
      Ready{stage,
            layout,
            {find(layout), "few_filters"},
            g,
            {.threads = threads, .overlap_previous = overlap_previous}});
}
FewFiltersLaunch::~FewFiltersLaunch() = default;

std::string FewFiltersLaunch::run(const RunArgs& args, const void* w,
                                  cudaStream_t stream) const noexcept {
  const auto& [stage, layout, kernel, ready, of_stage] = *ready_;
  FewFiltersParams g = ready;
  g.x = static_cast<const float*>(args.x), g.w = static_cast<const float*>(w);
  g.post.bias = args.bias;
  g.y = static_cast<float*>(args.y);
  g.x_image = args.x_stride.n, g.x_row = args.x_stride.h, g.x_pixel = args.x_stride.w;
  g.y_image = args.y_stride.n, g.y_row = args.y_stride.h, g.y_pixel = args.y_stride.w;
  if (layout.flat) {
    const Index pixels = args.n * stage.h * stage.w;
    g.q = g.columns.size = static_cast<int>(pixels);
    g.rows.size = 1;
    g.strips = g.total = static_cast<unsigned>((pixels + strip_pixels - 1) / strip_pixels);
  } else {
    g.total = static_cast<unsigned>(args.n) * g.out_rows * g.strips;
  }
  Launch how = of_stage;
  const auto of_cta = static_cast<unsigned>(how.threads / g.lanes);
  how.grid = static_cast<int>((g.total + of_cta - 1) / of_cta);
  how.stream = stream;
  const cudaError_t error = kernel.launch(how, g);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching few_filters for " + to_text(stage));
}

}  // namespace convoy::cuda
