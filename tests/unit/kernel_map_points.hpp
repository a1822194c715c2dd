// What tests of kernel maps share: a drawn stage, a drawn point of it, by the definition of a
// convolution, and the maps of a stage.
#pragma once

#include <memory>
#include <vector>

#include "core/machine.hpp"
#include "cuda/known_gpus.hpp"
#include "cuda/sm80/window_tile.hpp"
#include "cuda/sm90/few_layout.hpp"
#include "inspect/kernel_map/few_map.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "verify/random.hpp"

namespace convoy::inspect {

/// A stage of some pixels: any filter, stride, dilation, padding, groups, pool; channels in eights
/// for half of them, so that halo takes them.
inline Stage draw_mapped(verify::Random& random) {
  while (true) {
    Stage s;
    s.dtype = random.pick({DType::f16, DType::f16, DType::bf16, DType::f32});
    s.n = random.between(1, 10);
    s.h = random.between(1, 20), s.w = random.between(1, 20);
    s.r = random.between(1, 5), s.s = random.between(1, 5);
    if (random.chance(0.2)) s.r = s.s = 1;
    s.stride = Extent(random.between(1, 3), random.between(1, 3));
    s.dil = Extent(random.between(1, 3), random.between(1, 3));
    if (random.chance(0.4)) s.stride = s.dil = Extent(1);
    for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
      *side = random.chance(0.3) ? 0 : random.between(0, 4);
    if (random.chance(0.25)) {  // small groups, which boxes take
      s.dtype = DType::f16;
      s.r = s.s = 3;
      s.stride = Extent(random.between(1, 3), random.between(1, 2));
      const Index own = random.pick({2, 4, 8, 16, 32});
      s.groups = random.pick({8, 16, 24, 32});
      s.c = s.groups * own,
      s.k = s.groups * std::max<Index>(1, own + random.pick({-1, 0, 0, 0, 1}));
    } else if (random.chance(0.6)) {
      s.c = 8 * random.between(1, 40), s.k = 8 * random.between(1, 40);
    } else {
      s.groups = random.chance(0.5) ? random.between(1, 12) : 1;
      s.c = s.groups * random.between(1, 70), s.k = s.groups * random.between(1, 70);
    }
    if (random.chance(0.1)) {  // a filter a channel
      s.groups = s.k = s.c;
      s.stride = Extent(random.between(1, 2)), s.dil = Extent(1);
      s.r = s.s = random.pick({2, 3, 5, 7});
    } else if (random.chance(0.15)) {  // few filters
      s.dtype = DType::f32;
      s.groups = 1, s.k = random.between(1, 8), s.c = random.between(16, 150);
      if (random.chance(0.5)) s.c = s.c / 4 * 4;
      if (random.chance(0.2)) s.pad = Padding{}, s.stride = Extent(1);
    }
    if (random.chance(0.1)) {  // few taps of all filters
      s.dtype = DType::f16;
      s.groups = 1, s.c = 8 * random.between(1, 30);
      s.r = random.between(1, 3), s.s = random.between(1, 3);
      s.stride = s.dil = Extent(1);
      if (random.chance(0.3)) s.pad = Padding{}, s.r = s.s = 1;
      s.k = random.between(1, 64 / (s.r * s.s));
    }
    if (random.chance(0.5)) s.pool = max_pool(2);
    if (random.chance(0.1)) s.layout = Layout::nchw;
    if (problems(s).empty()) return s;
  }
}

/// The definition, counted out: nothing of math/index_map.hpp.
struct Point {
  OutputIndex output;
  TapIndex tap;
  Index m, k, h, w, c;
  bool inside;
};
inline Point draw_point(const Stage& s, verify::Random& random) {
  const Shapes shapes = shapes_of(s);
  const Index of_group = s.c / s.groups;
  Point at;
  // Rows and columns that a pool takes.
  const bool windows = s.pool && *s.pool == max_pool(2);
  const Index p = windows ? shapes.out_h * 2 : shapes.p, q = windows ? shapes.out_w * 2 : shapes.q;
  at.output = {random.between(0, s.n - 1), random.between(0, p - 1), random.between(0, q - 1),
               random.between(0, s.k - 1)};
  at.tap = {random.between(0, s.r - 1), random.between(0, s.s - 1),
            random.between(0, of_group - 1)};
  at.m = at.output.n * shapes.p * shapes.q + at.output.p * shapes.q + at.output.q;
  at.k = at.tap.r * s.s * of_group + at.tap.s * of_group + at.tap.c;
  at.h = at.output.p * s.stride.h - s.pad.top + at.tap.r * s.dil.h;
  at.w = at.output.q * s.stride.w - s.pad.left + at.tap.s * s.dil.w;
  at.c = at.output.k / (s.k / s.groups) * of_group + at.tap.c;
  at.inside = at.h >= 0 && at.h < s.h && at.w >= 0 && at.w < s.w;
  return at;
}

/// Of a stage that window and fma take.
inline std::vector<std::unique_ptr<KernelMap>> maps_of(const Stage& stage, const Machine& machine) {
  std::vector<std::unique_ptr<KernelMap>> all;
  all.push_back(map_window(stage, machine, {}));
  for (const auto& tile : cuda::sm80::window_tiles(stage, machine))
    if (tile.box) all.push_back(map_window(stage, machine, tile.name()));
  if (stage.groups == 1 && stage.k % 8 == 0) all.push_back(map_halo(stage, machine, {}));
  all.push_back(map_fma(stage, machine, {}));
  if (cuda::sm90::few_refusals(stage, cuda::h200()).empty())
    all.push_back(map_few(stage, machine, {}));
  return all;
}

}  // namespace convoy::inspect
