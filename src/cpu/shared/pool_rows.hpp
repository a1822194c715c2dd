// Pools that registers do not hold, from rows of results that lie in a cache.
#pragma once

#include "core/kernel.hpp"
#include "cpu/shared/post_ops.hpp"
#include "cpu/shared/register_tile.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {

/// Rows of an image's results before the pool, [row][Q][width] from row `first` on.
struct RowsToPool {
  math::PoolAxis rows, columns;
  Index q = 0, width = 0;
  Index valid = 0;  // filters to store, at most width
  const float* from = nullptr;
  Index first = 0;
  PostOps post;  // applied to the maxima, if they follow the pool
};

/// The maxima of output rows [out_begin, out_end), all whose windows' rows are there, each of out_w
/// pixels. y: the image's first result.
void pool_rows(const RowsToPool& rows, Index out_begin, Index out_end, Index out_w, float* y,
               const Strides& y_stride);

}  // namespace convoy::cpu
