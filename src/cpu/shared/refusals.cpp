#include "cpu/shared/refusals.hpp"

#include <algorithm>

#include "core/size.hpp"
#include "cpu/shared/post_ops.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {
namespace {

std::string text(const Extent& extent) {
  return fmt::format("{}x{}", extent.h, extent.w);
}

}  // namespace

Refusals& Refusals::filter(Index r, Index s) {
  if (stage_.r == r && stage_.s == s) return *this;
  return refuse("the filter", text({stage_.r, stage_.s}), text({r, s}));
}
Refusals& Refusals::image_of_at_least(Index size, std::string_view why) {
  if (stage_.h >= size && stage_.w >= size) return *this;
  return refuse("the image", text({stage_.h, stage_.w}),
                fmt::format("at least {}: {}", text(Extent(size)), why));
}
bool pools_in_fours_or_less(const Stage& stage) {
  return PostOps(stage).behind_pool && none_or_any_max2.has(form_of_pool(stage));
}

bool pools_in_fours(const Stage& stage) {
  return pools_in_fours_or_less(stage) && none_or_whole_max2.has(form_of_pool(stage));
}

bool pools_apart(const Stage& stage) {
  return stage.pool && !pools_in_fours_or_less(stage);
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

Refusals& Refusals::plane_of_pool() {
  if (!pools_apart(stage_)) return *this;
  constexpr Index most = Index{1} << 30;
  const Shapes shapes = shapes_of(stage_);
  return expect((Size(shapes.p) * shapes.q * stage_.k).fits(most), "the results of an image",
                fmt::format("{}x{}x{}", shapes.p, shapes.q, stage_.k),
                fmt::format("at most {} before a pool that registers do not hold", most));
}

}  // namespace convoy::cpu
