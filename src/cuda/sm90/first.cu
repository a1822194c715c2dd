#include <algorithm>
#include <limits>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/sm90/first.cuh"
#include "math/divide.hpp"

namespace convoy::cuda::sm90 {
namespace {

using FirstKernel = void (*)(FirstParams);

int round_up(int a, int b) {
  return (a + b - 1) / b * b;
}

FirstPool pool_of(const Stage& stage) {
  if (!stage.pool) return FirstPool::none;
  return stage.pool->window == Extent(2) ? FirstPool::max2 : FirstPool::max3;
}

template <class T>
FirstKernel find(FirstPool pool) {
  switch (pool) {
    case FirstPool::max2:
      return first<T, 128, FirstPool::max2>;
    case FirstPool::max3:
      return first<T, 120, FirstPool::max3>;
    default:
      return first<T, 128, FirstPool::none>;
  }
}

FirstKernel find(const Stage& stage) {
  return stage.output_dtype(true) == DType::bf16 ? find<__nv_bfloat16>(pool_of(stage))
                                                 : find<__half>(pool_of(stage));
}

/// For each block of 64 channels and each k16 step two columns of eight core matrices (eight
/// channels x 16 bytes); taps and channels that do not exist are zero.
__global__ void pack_first(const std::uint16_t* w, std::uint16_t* packed, FirstLayout l, int k_all,
                           int r_all, int s_all, int c_all) {
  const int steps = l.slots / 4;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < l.w_bytes / 2;
       i += gridDim.x * blockDim.x) {
    const int within = i % 8;
    const int unit = i / 8;  // of 16 bytes: block, step, column, channel
    const int channel = unit % 64, column = unit / 64 % 2, step = unit / 128 % (r_all * steps),
              block = unit / 128 / (r_all * steps);
    const int slot = step % steps * 4 + column * 2 + within / 4, s = slot - l.lead, c = within % 4,
              r = step / steps;
    const int k_at = block * 64 + channel;
    const bool there = k_at < k_all && s >= 0 && s < s_all && c < c_all;
    packed[i] = there ? w[((k_at * r_all + r) * s_all + s) * c_all + c] : std::uint16_t{0};
  }
}

/// How many neighbouring tiles make a run, and how many runs a row of them: as many as leave the
/// busiest warpgroup the fewest tiles. Longer runs lose fewer columns, shorter ones share better.
void cut_runs(const Stage& stage, const Shapes& shapes, int sms, FirstLayout& l) {
  const bool overlap = pool_of(stage) == FirstPool::max3;
  const int longest = overlap && l.k_blocks == 1
                          ? static_cast<int>(math::ceil_div(shapes.out_w, l.out_w))
                          : 1,
            workers = l.k_blocks == 1 ? 2 * sms : sms;
  Index fewest = std::numeric_limits<Index>::max();
  for (int run = 1; run <= longest; ++run) {
    const int pitch = run * l.out_w - (overlap ? 1 : 0);
    const Index along = math::ceil_div(std::max<Index>(shapes.out_w - (overlap ? 1 : 0), 1), pitch),
                tiles = run * math::ceil_div(stage.n * l.runs_y * along, workers);
    if (tiles >= fewest) continue;
    fewest = tiles;
    l.run = run;
    l.run_pitch = pitch;
    l.runs_x = static_cast<int>(along);
  }
}

}  // namespace

std::string first_pack(const Stage& stage, const FirstLayout& layout, const void* w, void* packed,
                       cudaStream_t stream) noexcept {
  pack_first<<<64, 256, 0, stream>>>(static_cast<const std::uint16_t*>(w),
                                     static_cast<std::uint16_t*>(packed), layout,
                                     static_cast<int>(stage.k), static_cast<int>(stage.r),
                                     static_cast<int>(stage.s), static_cast<int>(stage.c));
  return describe(cudaGetLastError(), "packing the weights of first for " + to_text(stage));
}

std::vector<std::string> first_refusals(const Stage& stage, const DeviceFacts& device) {
  std::vector<std::string> why;
  const auto no = [&](bool refused, std::string reason) {
    if (refused) why.push_back(std::move(reason));
  };
  const DType out = stage.output_dtype(true);
  no(device.major != 9, "compute capability " + std::to_string(device.major) + "." +
                            std::to_string(device.minor) + ", the family needs 9.0 (wgmma)");
  no(stage.c > 4, "C = " + std::to_string(stage.c) + ", the family takes at most 4");
  no(out != DType::f16 && out != DType::bf16,
     "the output is " + std::string(name(out)) + ", the family gives f16 and bf16");
  no(stage.dtype != out && stage.dtype != DType::u8,
     "the input is " + std::string(name(stage.dtype)) +
         ", the family takes the output's type or u8");
  no(stage.k % 8 != 0,
     "K = " + std::to_string(stage.k) + " is no multiple of 8 (TMA moves 16 bytes)");
  no(stage.stride.h != stage.stride.w || stage.stride.h > 2, "a stride other than 1 or 2");
  no(stage.dil != Extent(1), "dilation is not supported");
  no(stage.groups != 1, "groups are not supported");
  no(stage.layout != Layout::nhwc, "the output layout is NCHW");
  no(stage.keep.any(), "second outputs are not supported");
  no(stage.act.is_neuron() || stage.t != 1, "neurons are not supported");
  no(stage.s > 15 || stage.r > 15, "a filter above 15x15");
  if (stage.pool) {
    const Pool& p = *stage.pool;
    const bool two = p == max(2), three = p == max(3, 2, Extent(1));
    no(!two && !three, "a pool other than max 2x2 or max 3x3 with stride 2 and pad 1");
    no(stage.act.kind == Activation::Kind::leaky && stage.act.a < 0,
       "a decreasing activation: pooling before it would change the result");
  }
  if (why.empty())
    no(first_layout(stage, device).bricks < 2,
       "weights and two bricks of the image do not fit in shared memory");
  return why;
}

FirstLayout first_layout(const Stage& stage, const DeviceFacts& device) {
  const FirstPool pool = pool_of(stage);
  const Shapes shapes = shapes_of(stage);
  const int u = static_cast<int>(stage.stride.h);
  FirstLayout l;
  l.conv_rows = pool == FirstPool::max3 ? 15 : 16;
  l.out_w = pool == FirstPool::none ? 16 : 8;
  l.out_h = pool == FirstPool::none ? 16 : pool == FirstPool::max2 ? 8 : 7;
  // The first stored pixel should be an even one, so that pairs start at words: a zero tap in front
  // where padding makes it odd.
  l.lead = static_cast<int>(stage.pad.left) % 2;
  l.slots = round_up(static_cast<int>(stage.s) + l.lead, 4);
  l.brick_rows = u * (l.conv_rows - 1) + static_cast<int>(stage.r);
  l.units = u == 1 ? 14 + l.slots : 15 + l.slots / 2;  // a pair of taps is 2 / u units on
  l.pitch = l.units * 16;
  l.k_stride = 16 * 2 / u;
  l.step_stride = 2 * l.k_stride;
  l.brick_bytes = round_up(l.brick_rows * l.pitch, 128);
  l.k_blocks = static_cast<int>(math::ceil_div(stage.k, 64));
  l.w_bytes = l.k_blocks * static_cast<int>(stage.r) * (l.slots / 4) * 2048;
  l.staging = round_up((l.out_w * l.out_h + 1) * 128, 1024);
  const int row_bytes = static_cast<int>(stage.w * stage.c) * 2;
  l.raw = stage.dtype == stage.output_dtype(true) && !stage.norm && row_bytes % 16 == 0;
  // A word more than the units hold: see widen_rows; up to 14 bytes before them: see raw_column.
  const int row_halves = (u * (l.units - 1) + 2) * static_cast<int>(stage.c);
  l.raw_pitch = l.raw ? round_up(row_halves * 2 + 4 + 14, 16) : 0;
  l.raw_bytes = round_up(l.brick_rows * l.raw_pitch, 128);
  const int room = static_cast<int>(device.shared_bytes) - 2048 - 2 * l.staging - l.w_bytes -
                   raw_slots * l.raw_bytes;
  l.bricks = room < 0 ? 0 : std::min(4, room / l.brick_bytes);
  if (l.k_blocks == 1) l.bricks -= l.bricks % 2;  // a ring for each consumer
  l.shared_bytes =
      2048 + 2 * l.staging + l.w_bytes + raw_slots * l.raw_bytes + l.bricks * l.brick_bytes;
  l.runs_y = static_cast<int>(math::ceil_div(shapes.out_h, l.out_h));
  cut_runs(stage, shapes, device.sms, l);
  l.grid = static_cast<int>(std::min<Index>(device.sms, stage.n * l.runs_x * l.runs_y));
  return l;
}

TensorMapArgs first_x_map(const Stage& stage, const FirstLayout& l) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t row = u(stage.w * stage.c);
  TensorMapArgs map{.dtype = stage.dtype, .rank = 3};
  map.size = {row, u(stage.h), u(stage.n)};
  map.stride = {0, row * 2, row * u(stage.h) * 2};
  map.box = {static_cast<std::uint32_t>(l.raw_pitch / 2), static_cast<std::uint32_t>(l.brick_rows),
             1};
  map.swizzle = false;
  return map;
}

TensorMapArgs first_y_map(const Stage& stage, const FirstLayout& l, Index pixel_stride,
                          bool without_first) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const Shapes shapes = shapes_of(stage);
  const std::uint64_t pixel = u(pixel_stride) * 2, row = pixel * u(shapes.out_w);
  TensorMapArgs map{.dtype = stage.output_dtype(true), .rank = 4};
  map.size = {u(stage.k), u(shapes.out_w), u(shapes.out_h), u(stage.n)};
  map.stride = {0, pixel, row, row * u(shapes.out_h)};
  map.box = {64, static_cast<std::uint32_t>(l.out_w - (without_first ? 1 : 0)),
             static_cast<std::uint32_t>(l.out_h), 1};
  return map;
}

struct FirstLaunch::Ready {
  Stage stage;
  FirstLayout layout;
  LoadedKernel<FirstParams> kernel;
  FirstParams params;  // of a run of all images, with dense y: addresses are set last
};

FirstLaunch::FirstLaunch(const Stage& stage, const FirstLayout& layout, const void* w) {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  FirstParams p{};
  p.w = w;
  p.act = clamp_of(stage.act);
  p.in = stage.dtype;
  p.c = i(stage.c), p.k = i(stage.k), p.r = i(stage.r), p.s = i(stage.s);
  p.h = i(stage.h), p.w_in = i(stage.w), p.p = i(shapes.p), p.q = i(shapes.q);
  p.stride = i(stage.stride.h);
  p.pad_top = i(stage.pad.top);
  p.pad_left = i(stage.pad.left) + layout.lead;
  p.at = layout;
  p.columns = Divisor(layout.runs_x);
  p.rows = Divisor(layout.runs_y);
  p.units = Divisor(layout.units);
  p.rows_step = 128 / layout.units;
  p.units_step = 128 % layout.units;
  std::string why = encode(first_y_map(stage, layout, stage.k, false), w, &p.y);
  if (why.empty()) why = encode(first_y_map(stage, layout, stage.k, true), w, &p.y_without_first);
  if (why.empty() && layout.raw) why = encode(first_x_map(stage, layout), w, &p.image);
  if (!why.empty()) throw Error("first for " + to_text(stage) + ": " + why);
  ready_ = std::make_unique<const Ready>(Ready{stage, layout, {find(stage), "first"}, p});
}
FirstLaunch::~FirstLaunch() = default;

std::string FirstLaunch::run(const FirstRun& run, cudaStream_t stream) const noexcept {
  const auto& [stage, layout, kernel, ready] = *ready_;
  FirstParams p = ready;
  p.x = run.x;
  p.bias = run.bias;
  p.norm_scale = run.norm_scale;
  p.norm_shift = run.norm_shift;
  p.x_stride = run.x_stride;
  p.runs = static_cast<int>(run.n) * layout.runs_x * layout.runs_y;
  const Strides& given = run.x_stride;
  const bool dense = given.n == stage.h * stage.w * stage.c && given.h == stage.w * stage.c &&
                     given.w == stage.c && given.c == 1;
  if (!dense || reinterpret_cast<std::uintptr_t>(run.x) % 16 != 0) p.at.raw = false;
  const auto part = [&] {
    Stage fewer = stage;
    fewer.n = run.n;
    return fewer;
  };
  const bool whole = run.n == stage.n;
  const auto to_y = [&](CUtensorMap* map, bool without_first) {
    return whole && run.y_pixel_stride == stage.k
               ? redirect(map, run.y)
               : encode(first_y_map(part(), layout, run.y_pixel_stride, without_first), run.y, map);
  };
  std::string why = to_y(&p.y, false);
  if (why.empty() && layout.runs_x > 1) why = to_y(&p.y_without_first, true);
  if (why.empty() && p.at.raw)
    why = whole ? redirect(&p.image, run.x) : encode(first_x_map(part(), layout), run.x, &p.image);
  if (!why.empty()) return why;

  const cudaError_t error = kernel.launch({std::min(layout.grid, p.runs), first_threads,
                                           layout.shared_bytes, stream, run.overlap_previous},
                                          p);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching first for " + to_text(stage));
}

}  // namespace convoy::cuda::sm90
