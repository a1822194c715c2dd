// Pools that registers do not hold: some rows of sums at a time, while they lie in a cache.
#include <algorithm>
#include <cstring>

#include "cpu/direct/direct_prepared.hpp"
#include "cpu/shared/pool_rows.hpp"

namespace convoy::cpu {

// Rows that windows of two steps share are kept, not computed twice.
void DirectPrepared::run_pooled(const RunArgs& args, const TileArgs& tile, const FilterBlock& block,
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
    Ahead now = out_end == piece.rows.out_end ? ahead : ahead.nothing();
    if (by_rows_ && !skips()) {
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
    finish_unpooled_rows(post_, {scratch.pool + rows.pixel * block.width, rows.end - rows.begin,
                                 row_floats, shapes_.q, block.width, block.width});
    const RowsToPool results{pool_rows_,  pool_columns_, shapes_.q,  block.width,
                             block.count, scratch.pool,  step.begin, post_};
    pool_rows(results, step.out_begin, step.out_end, shapes_.out_w,
              static_cast<float*>(args.y) + block.first + piece.image * args.y_stride.n,
              args.y_stride);
  }
}

}  // namespace convoy::cpu
