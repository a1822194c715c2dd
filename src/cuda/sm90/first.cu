#include <algorithm>

#include "core/failure.hpp"
#include "cuda/sm90/first.cuh"
#include "cuda/sm90/launching.hpp"
#include "cuda/types.cuh"

namespace convoy::cuda::sm90 {
namespace {

using FirstKernel = void (*)(FirstParams);

template <class T>
FirstKernel find(FirstPool pool) {
  switch (pool) {
    case FirstPool::none:
      return first<T, 128, FirstPool::none>;
    case FirstPool::max2:
      return first<T, 128, FirstPool::max2>;
    case FirstPool::max3:
      return first<T, 120, FirstPool::max3>;
  }
  return nullptr;
}

FirstKernel find(const Stage& stage) {
  return for_16_bits(stage.output_dtype(true),
                     [&]<class T>() { return find<T>(first_pool(stage)); });
}

}  // namespace

struct FirstLaunch::Ready {
  Stage stage;
  FirstLayout layout;
  LoadedKernel<FirstParams> kernel;
  FirstParams params;  // of a run of all images, with dense y: addresses are set last
};

FirstLaunch::FirstLaunch(const Stage& stage, const FirstLayout& layout) {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  FirstParams p{};
  p.post = post_ops_of(stage);
  p.in = stage.dtype;
  p.c = i(stage.c), p.r = i(stage.r), p.s = i(stage.s);
  p.h = i(stage.h), p.w_in = i(stage.w), p.p = i(shapes.p), p.q = i(shapes.q);
  p.stride = i(stage.stride.h);
  p.pad_top = i(stage.pad.top);
  p.pad_left = i(stage.pad.left) + layout.lead;
  p.at = layout;
  p.columns = Divisor(layout.runs_x);
  p.rows = Divisor(layout.runs_y);
  p.units = Divisor(layout.units);
  p.rows_step = warpgroup_threads / layout.units;
  p.units_step = warpgroup_threads % layout.units;
  ready_.reset(new Ready{stage, layout, {find(stage), "first"}, p});
}
FirstLaunch::~FirstLaunch() = default;

void FirstLaunch::use(const void* w) {
  auto& [stage, layout, kernel, p] = *ready_;
  p.w = w;
  // Any address will do for the maps.
  std::string why = encode(first_y_map(stage, layout, stage.k, false), w, &p.y);
  if (why.empty()) why = encode(first_y_map(stage, layout, stage.k, true), w, &p.y_without_first);
  if (why.empty() && layout.raw) why = encode(first_x_map(stage, layout), w, &p.image);
  if (!why.empty()) throw DeviceError("first for " + to_text(stage) + ": " + why);
}

std::string FirstLaunch::run(const FirstRun& run, cudaStream_t stream) const noexcept {
  const auto& [stage, layout, kernel, ready] = *ready_;
  FirstParams p = ready;
  p.x = run.x;
  p.post.bias = run.bias;
  p.norm_scale = run.norm_scale;
  p.norm_shift = run.norm_shift;
  p.x_stride = run.x_stride;
  p.runs = static_cast<int>(run.n) * layout.runs_x * layout.runs_y;
  const Strides& given = run.x_stride;
  const bool dense = given.n == stage.h * stage.w * stage.c && given.h == stage.w * stage.c &&
                     given.w == stage.c && given.c == 1;
  if (!dense || reinterpret_cast<std::uintptr_t>(run.x) % 16 != 0) p.at.raw = false;
  Stage part = stage;
  part.n = run.n;
  const bool whole = run.n == stage.n;
  const auto aim_y = [&](CUtensorMap* map, bool without_first) {
    return aim(map, run.y, whole && run.y_pixel_stride == stage.k,
               [&] { return first_y_map(part, layout, run.y_pixel_stride, without_first); });
  };
  std::string why = aim_y(&p.y, false);
  if (why.empty() && layout.runs_x > 1) why = aim_y(&p.y_without_first, true);
  if (why.empty() && p.at.raw)
    why = aim(&p.image, run.x, whole, [&] { return first_x_map(part, layout); });
  if (!why.empty()) return why;
  return launch(kernel, p, std::min(layout.grid, p.runs), first_threads, layout.shared_bytes,
                stream, [&] { return "first for " + to_text(stage); });
}

}  // namespace convoy::cuda::sm90
