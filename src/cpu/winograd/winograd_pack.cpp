// Winograd's weights: transformed in double precision, or put in order where a run transforms them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/winograd/winograd.hpp"

namespace convoy::cpu::winograd {
namespace {

// 1-D filter transform, rows in the order of the points; for 2x2 times 2.
constexpr double a = point_a, b = point_b;
constexpr double filter4[6][3] = {{1, 0, 0},    {1, a, a* a},  {1, -a, a* a},
                                  {1, b, b* b}, {1, -b, b* b}, {0, 0, 1}};
constexpr double filter2[4][3] = {{2, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 2}};
constexpr double filter2_stride2[4][3] = {{1, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 0}};

// U of one filter and some of its channels: w is [3][3] with `step` floats between taps.
constexpr Index side_by_side = 8;
template <int n>
using Transformed = double[n][n][side_by_side];

template <int n>
void transform_filter(const double (&g)[n][3], const float* w, Index step, Index channels,
                      Transformed<n>& u) {
  double taps[3][3][side_by_side] = {};
  for (int tap = 0; tap < 9; ++tap)
    for (Index i = 0; i < channels; ++i)
      taps[tap / 3][tap % 3][i] = static_cast<double>(w[tap * step + i]);
  const auto add = [](double(&to)[side_by_side], double factor, const double(&from)[side_by_side]) {
    for (Index i = 0; i < side_by_side; ++i) to[i] += factor * from[i];
  };
  double half[n][3][side_by_side] = {};
  for (int i = 0; i < n; ++i)
    for (int s = 0; s < 3; ++s)
      for (int r = 0; r < 3; ++r)
        if (g[i][r] != 0) add(half[i][s], g[i][r], taps[r][s]);
  std::memset(u, 0, sizeof u);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int s = 0; s < 3; ++s)
        if (g[j][s] != 0) add(u[i][j], g[j][s], half[i][s]);
}

// u is [panel of filters][n][n][c][filter of the panel]. Some channels of a panel are put together
// first: u's points lie large powers of two apart, share cache sets and would evict one another.
template <int n>
void pack_filters(const double (&g)[n][3], const float* w, Index k, Index c, Index panel,
                  float* u) {
  std::vector<float> block(static_cast<std::size_t>(n * n * side_by_side * panel));
  for (Index first = 0; first < k; first += panel) {
    std::fill(block.begin(), block.end(), 0.0F);  // filters that fill the last panel are zero
    for (Index channel = 0; channel < c; channel += side_by_side) {
      const Index channels = std::min(side_by_side, c - channel);
      for (Index filter = first; filter < std::min(first + panel, k); ++filter) {
        Transformed<n> transformed;
        transform_filter(g, w + filter * 9 * c + channel, c, channels, transformed);
        float* to = block.data() + filter - first;
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < n; ++j)
            for (Index lane = 0; lane < side_by_side; ++lane, to += panel)
              *to = static_cast<float>(transformed[i][j][lane]);
      }
      for (Index point = 0; point < n * n; ++point)
        std::copy_n(block.data() + point * side_by_side * panel, channels * panel,
                    u + first * n * n * c + (point * c + channel) * panel);
    }
  }
}

// [panel of filters][c][9][filter of the panel]
void pack_plain(const float* w, Index k, Index c, Index panel, float* to) {
  for (Index first = 0; first < k; first += panel)
    for (Index channel = 0; channel < c; ++channel)
      for (Index tap = 0; tap < 9; ++tap, to += panel)
        for (Index i = 0; i < panel; ++i)
          to[i] = first + i < k ? w[((first + i) * 9 + tap) * c + channel] : 0.0F;
}

}  // namespace

void pack(const Geometry& g, Index panel, const float* w, float* to) {
  if (g.slice > 0)
    pack_plain(w, g.k, g.c, panel, to);
  else if (g.m == 4)
    pack_filters(filter4, w, g.k, g.c, panel, to);
  else if (g.stride == 2)
    pack_filters(filter2_stride2, w, g.k, g.c, panel, to);
  else
    pack_filters(filter2, w, g.k, g.c, panel, to);
}

}  // namespace convoy::cpu::winograd
