// How kernels of few input channels cut a run: into bands of output rows, or of windows of a 2×2
// pool, each made from a packed band of padded input rows.
#pragma once

#include <algorithm>

#include "core/kernel.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {

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
