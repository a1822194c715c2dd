#include "cuda/launch.hpp"
#include "cuda/memory.hpp"
#include "cuda/sm80/window.cuh"
#include "cuda/sm90/halo_load.cuh"
#include "cuda/tensor_map.hpp"
#include "shared_memory.hpp"

namespace convoy {
namespace {

using cuda::DeviceMemory;

/// Memory of so many units, each with its number.
DeviceMemory numbered(std::size_t units) {
  std::vector<Unit> all(units);
  for (std::size_t i = 0; i < units; ++i) all[i] = unit_of(i);
  DeviceMemory memory(0, units * sizeof(Unit), "numbered units");
  memory.upload(all.data(), units * sizeof(Unit));
  return memory;
}

std::vector<Unit> copied_back(const DeviceMemory& memory) {
  std::vector<Unit> all(memory.bytes() / sizeof(Unit));
  cuda::check(cudaMemcpy(all.data(), memory.data(), memory.bytes(), cudaMemcpyDefault),
              "copying what shared memory held");
  return all;
}

struct WindowDump {
  cuda::sm80::WindowParams window;
  int cta, step;
  uint4* out;
};

template <class Shape, template <int> class Pixels>
__global__ void dump_window(const __grid_constant__ WindowDump p) {
#if __CUDA_ARCH__ >= 800
  using namespace cuda::sm80;
  extern __shared__ __align__(128) unsigned char ring[];
  WindowTap* const taps = reinterpret_cast<WindowTap*>(ring + Shape::shared_bytes);
  const WindowCta cta(p.window.at, Shape::m, Shape::n, p.cta);
  WindowGeometry g = p.window.at.g;
  g.channel_bytes = cta.channels * 2;
  for (int i = static_cast<int>(threadIdx.x); i < g.r * g.s; i += Shape::threads)
    taps[i] = tap_of(g, i);
  __syncthreads();
  WindowLoads<__half, Shape, Pixels> loads(
      p.window, cta, g, taps, static_cast<std::uint32_t>(__cvta_generic_to_shared(ring)));
  for (int step = 0; step <= p.step; ++step) {
    const std::uint32_t slot = step % Shape::slots * Shape::slot_bytes;
    if constexpr (Shape::pairs) {
      for (int i = 0; i < Shape::copies_n; ++i) loads.weight(i, slot);
      for (int i = 0; i < Shape::copies_m; ++i) loads.pixel(i, slot);
      loads.end_weights(true);
      loads.end_pixels();
    } else {
      loads.weights(slot);
      loads.pixels(slot);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < Shape::shared_bytes / 16; i += Shape::threads)
    p.out[i] = reinterpret_cast<const uint4*>(ring)[i];
#endif
}

template <cuda::sm80::WindowTile Tile, template <int> class Pixels>
void run_dump(const WindowDump& p, int shared_bytes) {
  using Shape = cuda::sm80::WindowShape<Tile>;
  cuda::check(cuda::make_ready(&dump_window<Shape, Pixels>), "loading dump_window");
  cuda::check(cuda::launch(&dump_window<Shape, Pixels>,
                           {.grid = 1, .threads = Shape::threads, .shared_bytes = shared_bytes}, p),
              "launching dump_window");
}

/// Of the one of these that the tile is; whether it is one.
template <cuda::sm80::WindowTile... Tiles>
bool run_dump_of(const cuda::sm80::WindowTile& tile, const WindowDump& p, int shared_bytes) {
  const auto run = [&]<cuda::sm80::WindowTile Tile>() {
    if (tile != Tile) return false;
    run_dump<Tile, cuda::sm80::Optimized>(p, shared_bytes);
    return true;
  };
  return (run.template operator()<Tiles>() || ...);
}

struct HaloDump : cuda::sm90::HaloParams {
  int number;  // of the tile; all CTAs but one leave
  uint4 *pixels, *weights;
};

__global__ void __launch_bounds__(cuda::sm90::halo_threads, 1)
    dump_halo(const __grid_constant__ HaloDump p) {
#if __CUDA_ARCH__ >= 900
  using namespace cuda::sm90;
  if (static_cast<int>(blockIdx.x) != p.number) return;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = aligned(ptx::shared_address(raw));
  const std::uint8_t* const at = raw + (base - ptx::shared_address(raw));
  const HaloBarriers bar(p, base);
  init_rings(p, bar);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, producer = warp % 4;
  if (warp >= consumer_warps) {
    if (threadIdx.x % 32 != 0) return;
    if (producer % 2 == 0)
      produce_pixels(p, bar, base, {producer / 2, 2});
    else
      produce_weights(p, bar, base + p.at.w_offset, {producer / 2, 2});
    return;
  }
  // Warpgroup 0 empties the slots of pixels, warpgroup 1 those of weights.
  const int g = warpgroup_of_thread(), thread = static_cast<int>(threadIdx.x) % warpgroup_threads;
  const RingBarriers& mine = g == 0 ? bar.x : bar.w;
  const int readers = p.at.pingpong ? consumer_warps / 2 : consumer_warps;
  const int loads =
      g == 0 ? p.at.chunks / p.at.slot_chunks * (p.at.boxes / p.at.slot_boxes) : p.slabs;
  const int bytes = g == 0 ? p.at.x_slot : p.at.w_slot;
  const std::uint8_t* const slots = at + (g == 0 ? 0 : p.at.w_offset);
  uint4* const out = g == 0 ? p.pixels : p.weights;
  Ring ring;
  for (int load = 0; load < loads; ++load) {
    ptx::mbarrier_wait(mine.full(ring.slot), ring.parity);
    const uint4* const from = reinterpret_cast<const uint4*>(slots + ring.slot * bytes);
    for (int i = thread; i < bytes / 16; i += warpgroup_threads)
      out[load * (bytes / 16) + i] = from[i];
    sync_warpgroup(g);
    if (thread == 0)
      for (int i = 0; i < readers; ++i) ptx::mbarrier_arrive(mine.empty(ring.slot));
    ring.advance(mine.slots);
  }
#endif
}

}  // namespace

Unit unit_of(std::uint64_t number) {
  return {number + 1, ~number};
}

std::vector<Unit> window_slots(const Stage& stage, const cuda::sm80::WindowTile& tile, int cta,
                               int step, std::size_t x_units, std::size_t w_units) {
  using namespace cuda::sm80;
  const DeviceMemory x = numbered(x_units), w = numbered(w_units);
  const DeviceMemory out(0, static_cast<std::size_t>(tile.shared_bytes()), "slots");
  WindowDump p{};
  p.window.at = window_sizes(stage, tile);
  p.window.at.g.set_distances(stage.h * stage.w * stage.c * 2, stage.w * stage.c * 2, stage.c * 2);
  p.window.x = static_cast<const char*>(x.data()), p.window.w = static_cast<const char*>(w.data());
  p.cta = cta, p.step = step, p.out = static_cast<uint4*>(out.data());
  const int shared = tile.shared_bytes() + static_cast<int>(stage.r * stage.s * sizeof(WindowTap));
  const bool ran = run_dump_of<largest, large, half_large, small, block_wide, wide_pairs,
                               tall_pairs, large_pairs>(tile, p, shared);
  if (tile == large_analytic)
    run_dump<large_analytic, Analytic>(p, shared);
  else if (tile == large_precomputed)
    run_dump<large_precomputed, Precomputed>(p, shared);
  else if (!ran)
    return {};
  return copied_back(out);
}

HaloSlots halo_slots(const Stage& stage, const cuda::sm90::HaloTile& tile,
                     const cuda::sm90::HaloLayout& layout, int number, std::size_t x_units,
                     std::size_t w_units) {
  using namespace cuda::sm90;
  const DeviceMemory x = numbered(x_units), w = numbered(w_units);
  const auto bytes = [](int one, int count) {
    return static_cast<std::size_t>(one) * static_cast<std::size_t>(count);
  };
  const DeviceMemory pixels(0, bytes(layout.x_slot, layout.slots_a_tile()), "slots of pixels"),
      weights(0, bytes(layout.w_slot, layout.slabs_a_tile()), "slots of weights");
  HaloDump p{};
  static_cast<HaloParams&>(p) = halo_params(stage, layout);
  std::string why = cuda::encode(halo_x_map(stage, tile, layout, stage.c), x.data(), &p.x);
  if (why.empty()) why = cuda::encode(halo_w_map(stage, tile, layout), w.data(), &p.w);
  if (!why.empty()) throw Error("dump_halo: " + why);
  p.tiles = number + 1, p.number = number;
  p.pixels = static_cast<uint4*>(pixels.data()), p.weights = static_cast<uint4*>(weights.data());
  cuda::check(cuda::make_ready(&dump_halo), "loading dump_halo");
  cuda::check(
      cuda::launch(
          &dump_halo,
          {.grid = number + 1, .threads = halo_threads, .shared_bytes = layout.shared_bytes}, p),
      "launching dump_halo");
  return {copied_back(pixels), copied_back(weights)};
}

}  // namespace convoy
