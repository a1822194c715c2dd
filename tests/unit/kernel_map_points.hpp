// What tests of kernel maps share: a drawn point of a stage, by the definition of a convolution,
// and the maps of a stage.
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
  for (const auto& tile : cuda::sm80::window_tiles(stage))
    if (tile.box) all.push_back(map_window(stage, machine, tile.name()));
  if (stage.groups == 1 && stage.k % 8 == 0) all.push_back(map_halo(stage, machine, {}));
  all.push_back(map_fma(stage, machine, {}));
  if (cuda::sm90::few_refusals(stage, cuda::h200()).empty())
    all.push_back(map_few(stage, machine, {}));
  return all;
}

}  // namespace convoy::inspect
