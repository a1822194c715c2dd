#include "cuda/wrap/winograd_tile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "core/size.hpp"
#include "cuda/refusals.hpp"
#include "cuda/stage_facts.hpp"
#include "math/divide.hpp"

namespace convoy::cuda {
namespace {

namespace f4 = math::winograd4;

constexpr Index megabyte = Index{1} << 20;

}  // namespace

WinogradOutputs winograd_outputs(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  if (!stage.pool) return {shapes.p, shapes.q};
  return {2 * shapes.out_h, 2 * shapes.out_w};
}

WinogradTiles winograd_tiles(const Stage& stage) {
  const WinogradOutputs wanted = winograd_outputs(stage);
  return {static_cast<int>(math::ceil_div(wanted.p, Index{f4::outputs})),
          static_cast<int>(math::ceil_div(wanted.q, Index{f4::outputs}))};
}

Index winograd_bytes_of_image(const Stage& stage) {
  return winograd_tiles(stage).of_image() * f4::points * (stage.c + stage.k) * Index{sizeof(float)};
}
Index winograd_images_of_chunk(const Stage& stage, Index megabytes) {
  return std::clamp(megabytes * megabyte / winograd_bytes_of_image(stage), Index{1}, stage.n);
}

std::vector<int> winograd_megabytes(const Stage& stage) {
  std::vector<int> all;
  Index last = 0;
  for (const int megabytes : {256, 32}) {
    const Index images = winograd_images_of_chunk(stage, megabytes);
    if (images != last) all.push_back(megabytes);
    last = images;
  }
  return all;
}
std::string winograd_tile_name(int megabytes) {
  return fmt::format("{}MB", megabytes);
}

Stage winograd_inner(const Stage& stage, Index images) {
  Stage inner;
  inner.dtype = DType::f32;
  inner.n = images * winograd_tiles(stage).of_image();
  inner.h = inner.w = inner.r = inner.s = 1;
  inner.c = f4::points * stage.c;
  inner.k = f4::points * stage.k;
  inner.groups = f4::points;
  return inner;
}

void refuse_winograd(const Stage& stage, Reasons& why) {
  // As the CPU's kernel of this name: measured against plain fp32 on thousands of drawn stages.
  const bool small = stage.h < 8 || stage.w < 8;
  const Index least = small ? 96 : 64;
  Refusals(stage, why)
      .no(stage.r != 3 || stage.s != 3,
          fmt::format("a filter of {}x{}, expected 3x3", stage.r, stage.s))
      .no(stage.c < least,
          fmt::format("C = {}, at least {}: with fewer the error of F(4x4) is too large", stage.c,
                      least))
      .no(stage.h < 4 || stage.w < 4, "an image below 4x4: the error of F(4x4) is too large")
      .no(stage.c % 4 != 0, fmt::format("C = {} is no multiple of 4", stage.c))
      .within(winograd_limits);
  if (!why.empty()) return;
  const Size work = Size(stage.n) * winograd_tiles(stage).of_image() * std::max(stage.c, stage.k);
  if (!work.fits(std::numeric_limits<int>::max()))
    why.emplace_back(too_many_tiles);
  else if (!problems(winograd_inner(stage, stage.n)).empty())
    why.emplace_back("too large by 36 products a tile");
}

Reasons winograd_refusals(const Stage& stage) {
  Reasons why = unserved(stage, served_by_winograd, DeviceKind::cuda);
  refuse_winograd(stage, why);
  return why;
}

}  // namespace convoy::cuda
