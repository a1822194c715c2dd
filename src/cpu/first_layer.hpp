// What the kernels `first` and `first_winograd2` have in common: both make a band of output rows,
// or of windows of a 2×2 pool, from a packed band of padded input rows.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {

/// Adds why neither of them takes the stage's types, layout and riders. A pool is looked at only
/// where there is no other reason yet.
void refuse_first_layer(const Stage& stage, std::vector<std::string>& reasons);

/// Bytes that a run must move.
double bytes_of_first_layer(const Stage& stage);

/// to[0, count): the stage's bias, 0 where it has none and beyond K.
void copy_bias(const RunArgs& args, const Stage& stage, Index count, float* to);

/// Calls run(image, first row, rows, slot) for the rows of all images in bands that a cache holds,
/// at most `most` rows of one image, the same number of bands to each thread.
template <class Run>
void for_each_band(const RunArgs& args, Index image_rows, Index most, int threads, const Run& run) {
  const Index rows = args.n * image_rows;
  Index tasks = std::max(math::ceil_div(rows, most), std::min<Index>(rows, 4 * threads));
  tasks = std::min(rows, math::ceil_div(tasks, threads) * threads);
  args.threads->for_each(tasks, [&](Index task, int slot) {
    const Index end = rows * (task + 1) / tasks;
    for (Index row = rows * task / tasks; row < end;) {
      const Index first = row % image_rows;
      const Index count = std::min({end - row, image_rows - first, most});
      run(row / image_rows, first, count, slot);
      row += count;
    }
  });
}

}  // namespace convoy::cpu
