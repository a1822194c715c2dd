#include "cpu/shared/pool_rows.hpp"

#include <algorithm>
#include <limits>

#include "math/divide.hpp"

namespace convoy::cpu {
using math::ceil_div;

void pool_rows(const RowsToPool& rows, Index out_begin, Index out_end, Index out_w, float* y,
               const Strides& y_stride) {
  const TileLoops& loops = tile_loops();
  const math::PoolAxis& across = rows.columns;
  WindowArgs window;
  window.column_pitch = across.dil * rows.width;
  window.row_pitch = rows.rows.dil * rows.q * rows.width;
  window.valid = rows.valid;
  window.from_pitch = across.stride * rows.width;
  window.to_pitch = y_stride.w;
  // Windows that no side of the plane cuts.
  const Index span = (across.window - 1) * across.dil + 1, room = across.size + across.pad - span;
  const Index inner = std::min(out_w, ceil_div(across.pad, across.stride));
  const Index inner_end = room < 0 ? inner : std::clamp(room / across.stride + 1, inner, out_w);
  for (Index o = out_begin; o < out_end; ++o) {
    const Index top = rows.rows.begin(o);
    window.rows = ceil_div(rows.rows.end(o) - top, rows.rows.dil);
    const float* row = rows.from + (top - rows.first) * rows.q * rows.width;
    for (Index column = 0; column < out_w; column += window.windows) {
      const Index left = across.begin(column);
      const bool is_inner = column >= inner && column < inner_end;
      window.windows = is_inner ? inner_end - column : 1;
      window.columns = is_inner ? across.window : ceil_div(across.end(column) - left, across.dil);
      window.from = row + left * rows.width;
      window.to = y + o * y_stride.h + column * y_stride.w;
      if (window.rows > 0 && window.columns > 0) {
        loops.window(window);
        continue;
      }
      // Padding and dilation can leave a window with nothing inside the plane.
      for (Index i = 0; i < window.windows; ++i)
        std::fill_n(window.to + i * y_stride.w, window.valid,
                    -std::numeric_limits<float>::infinity());
    }
    if (rows.post.behind_pool)
      finish_rows(rows.post, {y + o * y_stride.h, 1, 0, out_w, y_stride.w, rows.valid});
  }
}

}  // namespace convoy::cpu
