// few: y = pool(act(conv(x, w) + bias)) for K*R*S <= 64 on Hopper, from top to bottom.
//
// With three filters a tensor-core tile of 64 channels would be empty but for three rows. Here
// every tap of every filter is a row: one pass over the input gives z[k, r, s][pixel], a dot
// product over C, and the convolution is a sum of R*S shifted planes of z, made in shared memory.
// Nine times less math than a 3x3 by shifted views; what is left is reading x once.
//
// Order of summation: 64 input channels, 16 input channels for each tap; then the taps in order.
#include <algorithm>
#include <limits>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/divide.hpp"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/few.hpp"

namespace convoy::cuda::sm90 {
namespace {

constexpr int few_threads = 384;
constexpr int instruction_n = 160, instructions = 2;
constexpr int warpgroup_pixels = instruction_n * instructions, box_pixels = 2 * warpgroup_pixels;
constexpr int x_bytes = box_pixels * 128, w_bytes = 64 * 128;
// 8 floats more than a multiple of 32: the eight rows that a warp stores at once fall into all
// banks.
constexpr int z_pitch = box_pixels + 8;

struct FewParams {
  CUtensorMap x, w;
  const float* bias;
  void* y;
  Clamp act;
  FewLayout at;
  int k, r, s, pad_top, pad_left, window, out_w, out_h, tiles;
  Index y_pixel, y_row, y_image;
  Divisor columns, rows, filters,
      tile_w;  // tiles in a row, in a column; K; stored pixels in a tile's row
};

struct Tile3 {
  int x, y, n;  // first conv pixel, image
};
__device__ __forceinline__ Tile3 tile_at(const FewParams& p, int t) {
  Tile3 at;
  at.x = p.columns.reduce(t) * p.at.out_w;
  at.y = p.rows.reduce(t) * p.at.out_h;
  at.n = t;
  return at;
}

/// One thread loads, for each 64 channels, the box of pixels and all taps' weights into one slot.
__device__ __forceinline__ void few_produce(const FewParams& p, std::uint32_t slots,
                                            std::uint32_t full, std::uint32_t empty) {
  int turn = 0;
  for (int t = blockIdx.x; t < p.tiles; t += gridDim.x) {
    const Tile3 at = tile_at(p, t);
    for (int chunk = 0; chunk < p.at.chunks; ++chunk, ++turn) {
      const int slot = turn % p.at.slots;
      ptx::mbarrier_wait(empty + 8 * slot, (turn / p.at.slots & 1) ^ 1);
      ptx::mbarrier_arrive_expect(full + 8 * slot, p.at.box_w * p.at.box_h * 128 + w_bytes);
      const std::uint32_t to = slots + slot * p.at.slot_bytes;
      ptx::tma_load(to, &p.x, full + 8 * slot, chunk * 64, at.x - p.pad_left, at.y - p.pad_top,
                    at.n);
      ptx::tma_load(to + x_bytes, &p.w, full + 8 * slot, chunk * 64, 0, 0);
    }
  }
}

/// z to shared memory: rows of taps, columns of pixels.
__device__ __forceinline__ void store_z(const FewParams& p,
                                        const float (&d)[instructions][instruction_n / 2], float* z,
                                        int g) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4,
            rows = p.k * p.r * p.s;
#pragma unroll
  for (int i = 0; i < instructions; ++i) {
#pragma unroll
    for (int j = 0; j < instruction_n / 8; ++j) {
      float* to =
          z + row * z_pitch + g * warpgroup_pixels + i * instruction_n + 8 * j + 2 * (lane % 4);
      if (row < rows) *reinterpret_cast<float2*>(to) = make_float2(d[i][4 * j], d[i][4 * j + 1]);
      if (row + 8 < rows)
        *reinterpret_cast<float2*>(to + 8 * z_pitch) =
            make_float2(d[i][4 * j + 2], d[i][4 * j + 3]);
    }
  }
}

/// Sums the taps, pools, adds the bias, activates, rounds once. Neighbouring threads take the
/// filters of a pixel, then the next pixel, as they lie in y.
template <class T>
__device__ __forceinline__ void store_outputs(const FewParams& p, const Tile3& at, const float* z) {
  const int stored_w = p.at.out_w / p.window, stored = stored_w * (p.at.out_h / p.window) * p.k;
  for (int i = threadIdx.x; i < stored; i += 256) {
    int pixel = i;
    const int k = p.filters.reduce(pixel);
    const int x = p.tile_w.reduce(pixel), y = pixel;
    const int out_x = at.x / p.window + x, out_y = at.y / p.window + y;
    if (out_x >= p.out_w || out_y >= p.out_h) continue;
    float best = 0;
    for (int a = 0; a < p.window; ++a) {
      for (int b = 0; b < p.window; ++b) {
        const float* from =
            z + k * p.r * p.s * z_pitch + (y * p.window + a) * p.at.box_w + x * p.window + b;
        float sum = 0;
        for (int r = 0; r < p.r; ++r) {
          for (int s = 0; s < p.s; ++s, from += z_pitch) sum += from[r * p.at.box_w + s];
        }
        best = a + b == 0 ? sum : ptx::max_nan(best, sum);
      }
    }
    if (p.bias != nullptr) best += p.bias[k];
    if (p.act.slope != 1.0f) best = best < 0.0f ? best * p.act.slope : best;
    best = ptx::min_nan(ptx::max_nan(best, p.act.low), p.act.high);
    static_cast<T*>(p.y)[at.n * p.y_image + out_y * p.y_row + out_x * p.y_pixel + k] =
        static_cast<T>(best);
  }
}

template <class T>
__device__ __forceinline__ void few_consume(const FewParams& p, std::uint32_t slots, float* z,
                                            std::uint32_t full, std::uint32_t empty, int g) {
  const int lane = threadIdx.x % 32;
  const std::uint64_t base = ptx::descriptor_base(1024);
  int turn = 0;
  for (int t = blockIdx.x; t < p.tiles; t += gridDim.x) {
    float d[instructions][instruction_n / 2];
    for (int i = 0; i < instructions; ++i) ptx::touch(d[i]);
    const int end = turn + p.at.chunks;
    int keep = 0;
    for (; turn < end; ++turn) {
      const int slot = turn % p.at.slots;
      ptx::mbarrier_wait(full + 8 * slot, turn / p.at.slots & 1);
      const std::uint32_t from = slots + slot * p.at.slot_bytes;
      const std::uint64_t a = ptx::descriptor(base, from + x_bytes),
                          b = ptx::descriptor(base, from + g * warpgroup_pixels * 128);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int i = 0; i < instructions; ++i) {
          ptx::Wgmma<T, instruction_n>::mma(d[i], a + 2 * step,
                                            b + 2 * step + i * (instruction_n * 128 >> 4),
                                            step == 0 ? keep : 1);
        }
      }
      ptx::wgmma_commit();
      keep = 1;
      ptx::wgmma_wait<0>();
      // z will lie over the slots: those that this tile does not load again are given back after
      // it.
      if (turn + p.at.slots < end && lane == 0) ptx::mbarrier_arrive(empty + 8 * slot);
    }
    for (int i = 0; i < instructions; ++i) ptx::touch(d[i]);
    ptx::bar_sync(1, 256);  // both warpgroups have read their last slot
    store_z(p, d, z, g);
    ptx::bar_sync(1, 256);
    store_outputs<T>(p, tile_at(p, t), z);
    ptx::fence_proxy_async();  // the copy engine writes these slots next
    ptx::bar_sync(1, 256);
    for (int back = end - p.at.slots < 0 ? 0 : end - p.at.slots; back < end; ++back) {
      if (back >= end - p.at.chunks && lane == 0)
        ptx::mbarrier_arrive(empty + 8 * (back % p.at.slots));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(few_threads, 1) few(const __grid_constant__ FewParams p) {
  extern __shared__ std::uint8_t raw[];
  std::uint8_t* base = raw + (1024 - (ptx::shared_address(raw) & 1023)) % 1024;
  const std::uint32_t slots = ptx::shared_address(base);
  const std::uint32_t full = slots + p.at.shared_bytes - 2048, empty = full + 8 * p.at.slots;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.at.slots; ++s) {
      ptx::mbarrier_init(full + 8 * s, 1);
      ptx::mbarrier_init(empty + 8 * s, 8);
    }
    ptx::mbarrier_init_fence();
    ptx::prefetch_tensor_map(&p.x);
    ptx::prefetch_tensor_map(&p.w);
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int warpgroup =
      __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0);  // so that the compiler sees one value a warp
  if (warpgroup == 2) {
    ptx::shrink_registers<40>();
    if (threadIdx.x == 256) few_produce(p, slots, full, empty);
  } else {
    ptx::grow_registers<232>();
    few_consume<T>(p, slots, reinterpret_cast<float*>(base), full, empty, warpgroup);
  }
}

int ceil_div(Index a, Index b) {
  return static_cast<int>((a + b - 1) / b);
}

}  // namespace

std::vector<std::string> few_refusals(const Stage& stage, const DeviceFacts& device) {
  std::vector<std::string> why;
  const auto no = [&](bool refused, std::string reason) {
    if (refused) why.push_back(std::move(reason));
  };
  no(device.major != 9, "compute capability " + std::to_string(device.major) + "." +
                            std::to_string(device.minor) + ", the family needs 9.0 (wgmma)");
  no(stage.dtype != DType::f16 && stage.dtype != DType::bf16,
     "the input is " + std::string(name(stage.dtype)) + ", the family takes f16 and bf16");
  no(stage.output_dtype(true) != stage.dtype, "the output type differs from the input type");
  no(stage.c % 8 != 0,
     "C = " + std::to_string(stage.c) + " is no multiple of 8 (TMA moves 16 bytes)");
  no(stage.k * stage.r * stage.s > 64,
     "K*R*S = " + std::to_string(stage.k * stage.r * stage.s) + ", at most 64 rows fit");
  no(stage.stride != Extent(1), "a stride other than 1");
  no(stage.dil != Extent(1), "dilation is not supported");
  no(stage.groups != 1, "groups are not supported");
  no(stage.layout != Layout::nhwc, "the layout is NCHW");
  no(stage.norm, "norm is not supported");
  no(stage.keep.any(), "second outputs are not supported");
  no(stage.act.is_neuron() || stage.t != 1, "neurons are not supported");
  if (stage.pool) {
    no(*stage.pool != max(2), "a pool other than max 2x2 with stride 2");
    no(stage.act.kind == Activation::Kind::leaky && stage.act.a < 0,
       "a decreasing activation: pooling before it would change the result");
  }
  if (why.empty())
    no(few_layout(stage, device).slots == 0,
       "no box of at most " + std::to_string(box_pixels) + " pixels fits in shared memory");
  return why;
}

FewLayout few_layout(const Stage& stage, const DeviceFacts& device) {
  const Shapes shapes = shapes_of(stage);
  const int window = stage.pool ? 2 : 1;
  const int conv_w = static_cast<int>(shapes.out_w) * window,
            conv_h = static_cast<int>(shapes.out_h) * window;
  const int halo_w = static_cast<int>(stage.s) - 1, halo_h = static_cast<int>(stage.r) - 1;
  FewLayout best;
  Index best_pixels = std::numeric_limits<Index>::max();
  // The box that moves the fewest pixels, waves counted whole.
  for (int w = window; w <= std::min(conv_w, 256 - halo_w); w += window) {
    const int h =
        std::min(conv_h, std::min(box_pixels / (w + halo_w), 256) - halo_h) / window * window;
    if (h <= 0) continue;
    const Index tiles = stage.n * ceil_div(conv_w, w) * ceil_div(conv_h, h);
    const Index pixels = ceil_div(tiles, device.sms) * Index{w + halo_w} * (h + halo_h);
    if (pixels >= best_pixels) continue;
    best_pixels = pixels;
    best.out_w = w;
    best.out_h = h;
  }
  if (best_pixels == std::numeric_limits<Index>::max()) return best;
  best.box_w = best.out_w + halo_w;
  best.box_h = best.out_h + halo_h;
  best.chunks = ceil_div(stage.c, 64);
  best.slot_bytes = x_bytes + w_bytes;
  const int room = static_cast<int>(device.shared_bytes) - 3072;
  const int z = static_cast<int>(stage.k * stage.r * stage.s) * z_pitch * 4;
  best.slots = z > room ? 0 : std::min(best.chunks, room / best.slot_bytes);
  best.shared_bytes = std::max(best.slots * best.slot_bytes, (z + 127) / 128 * 128) + 2048 + 1024;
  best.tiles_x = ceil_div(conv_w, best.out_w);
  best.tiles_y = ceil_div(conv_h, best.out_h);
  best.grid = static_cast<int>(std::min<Index>(device.sms, stage.n * best.tiles_x * best.tiles_y));
  return best;
}

TensorMapArgs few_x_map(const Stage& stage, const FewLayout& l, Index pixel_stride) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t pixel = u(pixel_stride) * 2;
  TensorMapArgs map{.dtype = stage.dtype, .rank = 4};
  map.size = {u(stage.c), u(stage.w), u(stage.h), u(stage.n)};
  map.stride = {0, pixel, pixel * u(stage.w), pixel * u(stage.w) * u(stage.h)};
  map.box = {64, static_cast<std::uint32_t>(l.box_w), static_cast<std::uint32_t>(l.box_h), 1};
  return map;
}

TensorMapArgs few_w_map(const Stage& stage) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  TensorMapArgs map{.dtype = stage.dtype, .rank = 3};
  map.size = {u(stage.c), u(stage.k * stage.r * stage.s), 1};
  map.stride = {0, u(stage.c) * 2, u(stage.c * stage.k * stage.r * stage.s) * 2};
  map.box = {64, 64, 1};
  return map;
}

namespace {
using FewKernel = void (*)(FewParams);
FewKernel find(const Stage& stage) {
  return stage.dtype == DType::bf16 ? few<__nv_bfloat16> : few<__half>;
}
}  // namespace

std::string few_ready(const Stage& stage) {
  return describe(make_ready(find(stage)), "loading few");
}

std::string few_launch(const Stage& stage, const FewLayout& layout, const FewRun& run,
                       cudaStream_t stream) noexcept {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  const FewKernel kernel = find(stage);
  FewParams p{};
  p.bias = run.bias;
  p.y = run.y;
  p.act = clamp_of(stage.act);
  p.at = layout;
  p.k = i(stage.k), p.r = i(stage.r), p.s = i(stage.s);
  p.pad_top = i(stage.pad.top);
  p.pad_left = i(stage.pad.left);
  p.window = stage.pool ? 2 : 1;
  p.out_w = i(shapes.out_w);
  p.out_h = i(shapes.out_h);
  p.tiles = i(run.n) * layout.tiles_x * layout.tiles_y;
  p.y_pixel = run.y_pixel_stride;
  p.y_row = p.y_pixel * shapes.out_w;
  p.y_image = p.y_row * shapes.out_h;
  p.columns = Divisor(layout.tiles_x);
  p.rows = Divisor(layout.tiles_y);
  p.filters = Divisor(p.k);
  p.tile_w = Divisor(layout.out_w / p.window);
  Stage part = stage;
  part.n = run.n;
  std::string why = encode(few_x_map(part, layout, run.x_pixel_stride), run.x, &p.x);
  if (why.empty()) why = encode(few_w_map(part), run.w, &p.w);
  if (!why.empty()) return why;
  const cudaError_t error = launch(kernel,
                                   {std::min(layout.grid, p.tiles), few_threads,
                                    layout.shared_bytes, stream, run.overlap_previous},
                                   p);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching few for " + to_text(stage));
}

}  // namespace convoy::cuda::sm90
