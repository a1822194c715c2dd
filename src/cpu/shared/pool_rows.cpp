#include "cpu/shared/pool_rows.hpp"

#include <algorithm>
#include <limits>

#include "math/divide.hpp"

namespace convoy::cpu {
using math::ceil_div;

void pool_rows(const RowsToPool& rows, Index out_begin, Index out_end, Index out_w, float* y,
               const Strides& y_stride) {
  const TileLoops& loops = tile_loops();
  WindowArgs window;
  window.column_pitch = rows.columns.dil * rows.width;
  window.row_pitch = rows.rows.dil * rows.q * rows.width;
  window.valid = rows.valid;
  for (Index o = out_begin; o < out_end; ++o) {
    const Index top = rows.rows.begin(o);
    window.rows = ceil_div(rows.rows.end(o) - top, rows.rows.dil);
    const float* row = rows.from + (top - rows.first) * rows.q * rows.width;
    for (Index column = 0; column < out_w; ++column) {
      const Index left = rows.columns.begin(column);
      window.columns = ceil_div(rows.columns.end(column) - left, rows.columns.dil);
      window.from = row + left * rows.width;
      window.to = y + o * y_stride.h + column * y_stride.w;
      if (window.rows > 0 && window.columns > 0)
        loops.window(window);
      else  // padding and dilation can leave a window with nothing inside the plane
        std::fill_n(window.to, window.valid, -std::numeric_limits<float>::infinity());
    }
  }
}

}  // namespace convoy::cpu
