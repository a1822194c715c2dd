#include "cpu/shared/refusals.hpp"

#include <algorithm>

#include "core/size.hpp"
#include "math/activation.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {
namespace {

std::string text(const Extent& extent) {
  return fmt::format("{}x{}", extent.h, extent.w);
}

std::string pool_text(const Pool& pool) {
  return fmt::format("max {} with stride {}, padding {} and dilation {}{}", text(pool.window),
                     text(pool.stride), text(pool.pad), text(pool.dil), pool.ceil ? ", ceil" : "");
}

bool takes_fours(const Pool& pool) {
  return pool.window == Extent{2} && pool.stride == Extent{2} && pool.pad == Extent{0} &&
         pool.dil == Extent{1};
}

constexpr std::string_view asked_for = "asked for", none = "none";

}  // namespace

Refusals& Refusals::filter(Index r, Index s) {
  if (stage_.r == r && stage_.s == s) return *this;
  return refuse("the filter", text({stage_.r, stage_.s}), text({r, s}));
}
Refusals& Refusals::no_stride() {
  if (stage_.stride == Extent{1}) return *this;
  return refuse("the stride", text(stage_.stride), "1x1");
}
Refusals& Refusals::no_dilation() {
  if (stage_.dil == Extent{1}) return *this;
  return refuse("the dilation", text(stage_.dil), "1x1");
}
Refusals& Refusals::one_group() {
  return expect(stage_.groups == 1, "groups", stage_.groups, "1");
}
Refusals& Refusals::image_of_at_least(Index size, std::string_view why) {
  if (stage_.h >= size && stage_.w >= size) return *this;
  return refuse("the image", text({stage_.h, stage_.w}),
                fmt::format("at least {}: {}", text(Extent(size)), why));
}
Refusals& Refusals::x_of(std::initializer_list<DType> types) {
  if (std::find(types.begin(), types.end(), stage_.dtype) != types.end()) return *this;
  std::string served;
  for (const DType type : types)
    served += fmt::format("{}{}", served.empty() ? "" : " or ", to_text(type));
  return refuse("x", to_text(stage_.dtype), served);
}
Refusals& Refusals::f32_y() {
  const DType type = stage_.output_dtype();
  return expect(type == DType::f32, "y", to_text(type), to_text(DType::f32));
}
Refusals& Refusals::nhwc() {
  return expect(stage_.layout == Layout::nhwc, "the layout", "nchw", "nhwc");
}
Refusals& Refusals::no_norm() {
  return expect(!stage_.norm, "norm", asked_for, none);
}
Refusals& Refusals::no_neuron() {
  return expect(!stage_.act.is_neuron(), "a neuron", asked_for, "an element-wise activation");
}
Refusals& Refusals::no_pool() {
  return expect(!stage_.pool, "a pool", asked_for, none);
}
Refusals& Refusals::no_keep() {
  return expect(!stage_.keep.any(), "keep", asked_for, none);
}
Refusals& Refusals::spikes() {
  return one_group().no_norm().expect(!stage_.hold, "hold", asked_for, none).no_keep();
}

bool pools_in_fours_or_less(const Stage& stage) {
  return stage.pool && takes_fours(*stage.pool);
}

bool pools_in_fours(const Stage& stage) {
  if (!stage.pool || !takes_fours(*stage.pool)) return false;
  if (!stage.pool->ceil) return true;  // no window ends beyond the plane
  const Shapes shapes = shapes_of(stage);
  return 2 * shapes.out_h <= shapes.p && 2 * shapes.out_w <= shapes.q;
}

Refusals& Refusals::windows_of_four() {
  if (!stage_.pool || pools_in_fours(stage_)) return *this;
  return refuse("the pool", pool_text(*stage_.pool),
                "max 2x2 with stride 2 and no window beyond the plane");
}

Refusals& Refusals::packing(Index rows) {
  // Never refused: 64 MiB, and images that are so large themselves. Never taken: what sizes in
  // bytes, times threads and transforms, have no room for.
  constexpr Index always = Index{1} << 24, never = Index{1} << 36;
  // Tiles may end behind the last output, and pixels be set apart.
  const Size columns = Size(stage_.w) + stage_.pad.left + stage_.pad.right +
                       Size(4) * stage_.stride.w + Size(stage_.s) * stage_.dil.w;
  const Size high = (Size(rows) + 3) * stage_.stride.h + Size(stage_.r) * stage_.dil.h;
  const Size floats = columns * high * (Size(stage_.c) + 16);
  const Size image = Size(4) * stage_.h * stage_.w * stage_.c;
  if (floats.fits(always) || (floats <= image && floats.fits(never))) return *this;
  return refuse("the packed input of a row of outputs, with padding and skipped pixels,",
                floats.fits() ? fmt::format("{} MiB", floats.value() >> 18) : "endless",
                "64 MiB, or less than four times the image");
}

Refusals& Refusals::rows_of_pool() {
  if (!stage_.pool) return *this;
  const Shapes shapes = shapes_of(stage_);
  const Size floats = Size(std::min(math::rows_of_window(stage_), shapes.p)) * shapes.q * 16;
  if (floats.fits(Index{1} << 24)) return *this;
  return refuse("the memory for the rows of a pool's window, for 16 filters,",
                floats.fits() ? fmt::format("{} MiB", floats.value() >> 18) : "endless", "64 MiB");
}

}  // namespace convoy::cpu
