// few: y = pool(act(conv(x, w) + bias)) for K*R*S <= 64 on Hopper, from top to bottom.
//
// With three filters a tensor-core tile of 64 channels would be empty but for three rows. Here
// every tap of every filter is a column: one pass over the input gives z[pixel][k, r, s], a dot
// product over C, and the convolution is a sum of R*S shifted planes of z, made in shared memory.
// Nine times less math than a 3x3 that reads shifted boxes; what is left is reading x once. A 1x1
// has no other taps to wait for: its z goes from registers to y, and tiles are runs of pixels that
// know neither rows nor images.
//
// Order of summation: 64 input channels, 16 input channels for each tap; then the taps in order.
#include <algorithm>

#include "core/failure.hpp"
#include "cuda/divide.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/few.hpp"
#include "cuda/sm90/few_thread.hpp"
#include "cuda/sm90/launching.hpp"
#include "cuda/sm90/place.hpp"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/shared_memory.hpp"
#include "cuda/sm90/warpgroups.cuh"
#include "cuda/types.cuh"

namespace convoy::cuda::sm90 {
namespace {

// Two warpgroups of consumers, and one whose first thread loads.
constexpr int few_threads = 3 * warpgroup_threads, consumers = few_consumers;
constexpr int block_bytes = few_block_pixels * row_bytes;

struct FewParams {
  CUtensorMap x, w;
  PostOps post;
  void* y;
  FewLayout at;
  int r, s, pad_top, pad_left, window, tiles;
  int out_w, out_h;  // of y; of a flat layout all pixels there are, and 1
  bool pairs;        // y takes two channels at a time
  Index y_pixel, y_row, y_image;
  Divisor columns, rows;   // of tiles
  Divisor tile_w, tile_h;  // conv columns of a tile, stored rows
};

/// First conv pixel and image of tile number t.
__device__ __forceinline__ Place place(const FewParams& p, int t) {
  return few_place(p.at, p.columns, p.rows, t);
}

/// Where things lie in shared memory: weights where they are resident, slots, z, barriers.
struct FewShared {
  std::uint32_t weights, slots, resident;  // the last: a barrier
  RingBarriers bar;
  std::uint8_t* z;  // sums
  __device__ __forceinline__ FewShared(const FewLayout& l, std::uint8_t* base) {
    weights = ptx::shared_address(base);
    const int before = l.resident ? l.chunks * l.w_bytes : 0;
    slots = weights + before;
    z = base + before + (l.z_over_slots ? 0 : l.slots * l.slot_bytes);
    bar = {weights + l.barriers, l.slots};
    resident = bar.end();
  }
};

/// One thread loads, for each 64 channels, the box of pixels into one slot, and with it the taps'
/// weights where they do not all stay.
__device__ __forceinline__ void few_produce(const FewParams& p, const FewShared& shared) {
  const int box_bytes = p.at.box_w * p.at.box_h * row_bytes;
  Ring ring;
  for (int t = blockIdx.x; t < p.tiles; t += gridDim.x) {
    const Place at = place(p, t);
    for (int chunk = 0; chunk < p.at.chunks; ++chunk, ring.advance(p.at.slots)) {
      const std::uint32_t full = shared.bar.full(ring.slot),
                          to = shared.slots + ring.slot * p.at.slot_bytes;
      ptx::mbarrier_wait(shared.bar.empty(ring.slot), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, box_bytes + (p.at.resident ? 0 : p.at.w_bytes));
      ptx::tma_load(to, &p.x, full, chunk * row_channels, at.x - p.pad_left, at.y - p.pad_top,
                    at.n);
      if (!p.at.resident)
        ptx::tma_load(to + p.at.blocks * block_bytes, &p.w, full, chunk * row_channels, 0, 0);
    }
  }
}

/// Brings what the CTA's first slots will hold to the L2 while the kernel before still runs.
__device__ __forceinline__ void few_prefetch(const FewParams& p) {
  const Place at = place(p, blockIdx.x);
  for (int chunk = 0; chunk < p.at.chunks && chunk < p.at.slots; ++chunk)
    ptx::tma_prefetch(&p.x, chunk * row_channels, at.x - p.pad_left, at.y - p.pad_top, at.n);
}

/// z to shared memory: rows of taps, columns of pixels. The pitch is 4 floats more than a multiple
/// of 64: the eight pixels of four taps that a warp stores at once fall into all banks.
template <class T, int N, int Blocks>
__device__ __forceinline__ void store_z(const FewParams& p, const Sum<T> (&d)[Blocks][N / 2],
                                        Sum<T>* z, int g) {
  const int lane = threadIdx.x % 32, taps = p.post.k * p.r * p.s;
  z += few_pixel(threadIdx.x, lane);
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    if (few_block(b, g) >= p.at.blocks) break;
    Sum<T>* block = z + few_block(b, g) * few_block_pixels;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {  // two pixels of a tap
      const int tap = few_tap(lane, i), j = few_register(i);
      if (tap >= taps) continue;
      block[tap * p.at.z_pitch] = d[b][j];
      block[tap * p.at.z_pitch + 8] = d[b][j + 2];
    }
  }
}

/// The taps of one conv pixel of one filter, in order. R and S of 0: as the stage says.
template <class T, int R, int S>
__device__ __forceinline__ Sum<T> sum_taps(const FewParams& p, const Sum<T>* from) {
  const int filter_h = R > 0 ? R : p.r, filter_w = S > 0 ? S : p.s;
  Sum<T> sum = 0;
#pragma unroll
  for (int r = 0; r < filter_h; ++r) {
#pragma unroll
    for (int s = 0; s < filter_w; ++s) sum += from[few_z_tap(p.at, r, s, filter_w)];
  }
  return sum;
}

/// Sums the taps, pools, adds the bias, activates, rounds once. Neighbouring threads take
/// neighbouring columns; of a pooling window each takes one column, and the left one stores.
template <class T, int R, int S>
__device__ __forceinline__ void store_outputs(const FewParams& p, const Place& at,
                                              const Sum<T>* z) {
  const int items = p.at.out_w * (p.at.out_h / p.window) * p.post.k;
  for (int base = 0; base < items; base += consumers) {
    const int item = base + threadIdx.x;
    int k = item < items ? item : 0;
    const int x = p.tile_w.reduce(k), y = p.tile_h.reduce(k);
    const Sum<T>* from = z + k * p.r * p.s * p.at.z_pitch + y * p.window * p.at.box_w + x;
    Sum<T> best = sum_taps<T, R, S>(p, from);
    if (p.window == 2) {
      best = ptx::max_nan(best, sum_taps<T, R, S>(p, from + p.at.box_w));
      best = ptx::max_nan(best, __shfl_xor_sync(0xFFFFFFFF, best, 1));
    }
    const int out_x = (at.x + x) / p.window, out_y = at.y / p.window + y;
    if (item >= items || x % p.window != 0 || out_x >= p.out_w || out_y >= p.out_h) continue;
    static_cast<T*>(p.y)[at.n * p.y_image + out_y * p.y_row + out_x * p.y_pixel + k] =
        static_cast<T>(p.post.apply(best, p.post.bias_of(k)));
  }
}

/// A 1x1's z is y but for the bias and the activation.
template <class T, int N, int Blocks>
__device__ __forceinline__ void store_pixels(const FewParams& p, int first,
                                             const Sum<T> (&d)[Blocks][N / 2],
                                             const float (&bias)[N / 4], int g) {
  const int lane = threadIdx.x % 32;
  first += threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 2 * Blocks; ++i) {
    const int b = i / 2, pixel = first + (2 * b + g) * few_block_pixels + i % 2 * 8;
    if (2 * b + g >= p.at.blocks || pixel >= p.out_w) continue;
    T* to = static_cast<T*>(p.y) + pixel * p.y_pixel;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const int k = 8 * j + 2 * (lane % 4);
      if (k >= p.post.k) continue;
      const Sum<T>* sums = d[b] + 4 * j + i % 2 * 2;
      const float v0 = p.post.apply(sums[0], p.post.addend(bias[2 * j])),
                  v1 = p.post.apply(sums[1], p.post.addend(bias[2 * j + 1]));
      if (p.pairs) {
        *reinterpret_cast<std::uint32_t*>(to + k) = pack<T>(v0, v1);
      } else {
        to[k] = static_cast<T>(v0);
        if (k + 1 < p.post.k) to[k + 1] = static_cast<T>(v1);
      }
    }
  }
}

template <class T, int N, bool Flat>
__device__ __forceinline__ void few_consume(const FewParams& p, const FewShared& shared, int g) {
  constexpr int Blocks = (Flat ? few_flat_columns / N : few_blocks) / 2;  // of a warpgroup
  const int lane = threadIdx.x % 32;
  const std::uint64_t base = ptx::descriptor_base(swizzle_bytes);
  float bias[N / 4] = {};
  if constexpr (Flat)
    p.post.load_bias(
        2 * (lane % 4), [](int i) { return i / 2 * 8 + i % 2; }, bias);
  if (p.at.resident) ptx::mbarrier_wait(shared.resident, 0);
  Ring ring;
  for (int t = blockIdx.x; t < p.tiles; t += gridDim.x) {
    Sum<T> d[Blocks][N / 2];
    for (int b = 0; b < Blocks; ++b) ptx::touch(d[b]);
    for (int chunk = 0; chunk < p.at.chunks; ++chunk, ring.advance(p.at.slots)) {
      ptx::mbarrier_wait(shared.bar.full(ring.slot), ring.parity);
      const std::uint32_t from = shared.slots + ring.slot * p.at.slot_bytes;
      const std::uint64_t x = ptx::descriptor(base, from + g * block_bytes),
                          w = ptx::descriptor(base, p.at.resident
                                                        ? shared.weights + chunk * p.at.w_bytes
                                                        : from + p.at.blocks * block_bytes);
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        if (2 * b + g < p.at.blocks) {
          ptx::wgmma_fence();
#pragma unroll
          for (int step = 0; step < row_steps; ++step) {
            ptx::Wgmma<T, N>::mma(d[b], x + step_units * step + b * (2 * block_bytes >> 4),
                                  w + step_units * step, step == 0 ? chunk : 1);
          }
          ptx::wgmma_commit();
        }
      }
      ptx::wgmma_wait<0>();
      // Where z lies over the slots, those that this tile does not load again wait for it.
      if ((!p.at.z_over_slots || chunk + p.at.slots < p.at.chunks) && lane == 0)
        ptx::mbarrier_arrive(shared.bar.empty(ring.slot));
    }
    for (int b = 0; b < Blocks; ++b) ptx::touch(d[b]);
    const Place at = place(p, t);
    if constexpr (Flat) {
      store_pixels<T, N, Blocks>(p, at.x, d, bias, g);
    } else {
      sync_consumers();  // both warpgroups have read z, and the slots under it
      auto* const z = reinterpret_cast<Sum<T>*>(shared.z);
      store_z<T, N, Blocks>(p, d, z, g);
      sync_consumers();
      if (p.r == 3 && p.s == 3)
        store_outputs<T, 3, 3>(p, at, z);
      else
        store_outputs<T, 0, 0>(p, at, z);
      if (p.at.z_over_slots) {
        ptx::fence_proxy_async();  // the copy engine writes these slots next
        sync_consumers();
        // With no more slots than chunks, each is held from its last chunk on.
        for (int slot = 0; slot < p.at.slots; ++slot) {
          if (lane == 0) ptx::mbarrier_arrive(shared.bar.empty(slot));
        }
      }
    }
  }
}

// Two flat CTAs share a multiprocessor: the one loads while the other waits.
template <class T, int N, bool Flat>
__global__ void __launch_bounds__(few_threads, Flat ? 2 : 1)
    few(const __grid_constant__ FewParams p) {
  static_assert(N == 32 || N == 64, "the taps of all filters are at most 64 columns");
  static_assert(sizeof(FewParams) <= 4096, "kernels take at most 4 KB of parameters");
  extern __shared__ std::uint8_t raw[];
  const FewShared shared(p.at, raw + aligned(ptx::shared_address(raw)) - ptx::shared_address(raw));
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.at.slots; ++s) shared.bar.init(s, 1, 2 * warpgroup_warps);
    ptx::mbarrier_init(shared.resident, 1);
    ptx::mbarrier_init_fence();
    ptx::prefetch_tensor_map(&p.x);
  }
  __syncthreads();
  ptx::grid_launch_dependents();
  if (threadIdx.x == 0 && p.at.resident) {  // settled before the launch: no need to wait
    ptx::mbarrier_arrive_expect(shared.resident, p.at.chunks * p.at.w_bytes);
    for (int chunk = 0; chunk < p.at.chunks; ++chunk)
      ptx::tma_load(shared.weights + chunk * p.at.w_bytes, &p.w, shared.resident,
                    chunk * row_channels, 0, 0);
  }
  if (Flat && threadIdx.x == consumers) few_prefetch(p);
  ptx::grid_dependency_wait();
  const int warpgroup = warpgroup_of_thread();
  if (warpgroup == 2) {
    if constexpr (!Flat) ptx::shrink_registers<40>();
    if (threadIdx.x == consumers) few_produce(p, shared);
  } else {
    if constexpr (!Flat) ptx::grow_registers<232>();
    few_consume<T, N, Flat>(p, shared, warpgroup);
  }
}

using FewKernel = void (*)(FewParams);

template <class T>
FewKernel find(const FewLayout& layout) {
  if (layout.flat) return layout.columns == 32 ? few<T, 32, true> : few<T, 64, true>;
  return layout.columns == 32 ? few<T, 32, false> : few<T, 64, false>;
}
FewKernel find(const Stage& stage, const FewLayout& layout) {
  return for_16_bits(stage.dtype, [&]<class T>() { return find<T>(layout); });
}
}  // namespace

struct FewLaunch::Ready {
  Stage stage;
  FewLayout layout;
  LoadedKernel<FewParams> kernel;
  FewParams params;  // of a run of all images, with dense x: its address is set last
  Index out_w, out_h;
};

FewLaunch::FewLaunch(const Stage& stage, const FewLayout& layout) {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  FewParams p{};
  p.post = post_ops_of(stage);
  p.at = layout;
  p.r = i(stage.r), p.s = i(stage.s);
  p.pad_top = i(stage.pad.top);
  p.pad_left = i(stage.pad.left);
  p.window = stage.pool ? 2 : 1;
  p.columns = Divisor(layout.tiles_x);
  p.rows = Divisor(layout.tiles_y);
  p.tile_w = Divisor(layout.out_w);
  p.tile_h = Divisor(layout.out_h / p.window);
  ready_.reset(
      new Ready{stage, layout, {find(stage, layout), "few"}, p, shapes.out_w, shapes.out_h});
}
FewLaunch::~FewLaunch() = default;

void FewLaunch::use(const void* w) {
  auto& [stage, layout, kernel, p, out_w, out_h] = *ready_;
  std::string why = encode(few_w_map(stage, layout), w, &p.w);
  // Any address will do for x.
  if (why.empty()) why = encode(few_x_map(stage, layout, stage.c), w, &p.x);
  if (!why.empty()) throw DeviceError("few for " + to_text(stage) + ": " + why);
}

std::string FewLaunch::run(const Run& run, cudaStream_t stream) const noexcept {
  const auto& [stage, layout, kernel, ready, out_w, out_h] = *ready_;
  const auto i = [](Index v) { return static_cast<int>(v); };
  FewParams p = ready;
  p.post.bias = run.bias;
  p.y = run.y;
  Stage part = stage;
  part.n = run.n;
  p.out_w = i(layout.flat ? run.n * stage.h * stage.w : out_w);
  p.out_h = i(layout.flat ? 1 : out_h);
  p.pairs = stage.k % 2 == 0 && run.y_pixel_stride % 2 == 0 &&
            reinterpret_cast<std::uintptr_t>(run.y) % 4 == 0;
  p.tiles = i(few_tiles(part, layout));
  p.y_pixel = run.y_pixel_stride;
  p.y_row = p.y_pixel * out_w;
  p.y_image = p.y_row * out_h;
  std::string why = aim(&p.x, run.x, run.n == stage.n && run.x_pixel_stride == stage.c,
                        [&] { return few_x_map(part, layout, run.x_pixel_stride); });
  if (!why.empty()) return why;
  return launch(kernel, p, std::min(layout.grid, p.tiles), few_threads, layout.shared_bytes, stream,
                [&] { return "few for " + to_text(stage); });
}

}  // namespace convoy::cuda::sm90
