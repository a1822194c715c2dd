#include <algorithm>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/sm90/first.cuh"

namespace convoy::cuda::sm90 {
namespace {

using FirstKernel = void (*)(FirstParams);

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
  return stage.output_dtype(true) == DType::bf16 ? find<__nv_bfloat16>(first_pool(stage))
                                                 : find<__half>(first_pool(stage));
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

}  // namespace

std::string first_pack(const Stage& stage, const FirstLayout& layout, const void* w, void* packed,
                       cudaStream_t stream) noexcept {
  pack_first<<<64, 256, 0, stream>>>(static_cast<const std::uint16_t*>(w),
                                     static_cast<std::uint16_t*>(packed), layout,
                                     static_cast<int>(stage.k), static_cast<int>(stage.r),
                                     static_cast<int>(stage.s), static_cast<int>(stage.c));
  return describe(cudaGetLastError(), "packing the weights of first for " + to_text(stage));
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
