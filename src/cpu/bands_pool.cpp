// Pools that registers do not hold: some rows of sums at a time, while they lie in a cache.
#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/bands.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
using math::ceil_div;

// Rows that windows of two steps share are kept, not computed twice.
void Bands::run_pooled(const RunArgs& args, const TileArgs& tile, const Block& block,
                       const Piece& piece, Index first_pixel, const Scratch& scratch,
                       const Ahead& ahead) const {
  const Index row_floats = shapes_.q * block.width;
  Rows held;  // in scratch.pool
  for (Index out = piece.rows.out_begin; out < piece.rows.out_end; out += pool_step_) {
    const Index out_end = std::min(out + pool_step_, piece.rows.out_end);
    math::PoolSpan step = math::span_of(pool_rows_, shapes_.out_h, out, out_end);
    step.end = pool_rows_.end(out_end - 1);
    const Index kept = std::max<Index>(0, held.end - step.begin);
    if (kept > 0)
      std::memmove(scratch.pool, scratch.pool + (step.begin - held.begin) * row_floats,
                   static_cast<std::size_t>(kept * row_floats) * sizeof(float));
    const Rows rows{step.begin + kept, step.end, kept * shapes_.q};
    held = {step.begin, step.end};
    Ahead now = out_end == piece.rows.out_end ? ahead : Ahead{};
    if (by_rows_ && !skip_) {
      const Index listed = run_rows(args, tile, block, piece, rows, 0, scratch, now);
      run_block(tile, block, listed, scratch, now);
    } else {
      const Index first = first_pixel + (rows.begin - piece.rows.begin) * shapes_.q;
      const Index count = (rows.end - rows.begin) * shapes_.q;
      Scratch listed = scratch;
      listed.at += first;
      listed.place += first;
      for (Index i = 0; i < count; ++i) listed.to[i] = (rows.pixel + i) * block.width;
      run_block(tile, block, count, listed, now);
    }
    pool_rows(args, block, piece.image, step, scratch.pool);
  }
}

// The maxima of output rows whose windows lie from rows.begin on in `from`.
void Bands::pool_rows(const RunArgs& args, const Block& block, Index image,
                      const math::PoolSpan& rows, const float* from) const {
  WindowArgs window;
  window.column_pitch = pool_columns_.dil * block.width;
  window.row_pitch = pool_rows_.dil * shapes_.q * block.width;
  window.valid = block.count;
  float* y = static_cast<float*>(args.y) + block.first + image * args.y_stride.n;
  for (Index o = rows.out_begin; o < rows.out_end; ++o) {
    const Index top = pool_rows_.begin(o);
    window.rows = ceil_div(pool_rows_.end(o) - top, pool_rows_.dil);
    const float* row = from + (top - rows.begin) * shapes_.q * block.width;
    for (Index column = 0; column < shapes_.out_w; ++column) {
      const Index left = pool_columns_.begin(column);
      window.columns = ceil_div(pool_columns_.end(column) - left, pool_columns_.dil);
      window.from = row + left * block.width;
      window.to = y + o * args.y_stride.h + column * args.y_stride.w;
      if (window.rows > 0 && window.columns > 0)
        loops_.window(window);
      else  // padding and dilation can leave a window with nothing inside the plane
        std::fill_n(window.to, window.valid, -std::numeric_limits<float>::infinity());
    }
  }
}

}  // namespace convoy::cpu
