// Which outputs and channels a thread of `depthwise` has. Host and device: the kernel calls this,
// and so does what shows it (inspect/kernel_map).
#pragma once

#include "cuda/any/depthwise_tile.hpp"
#include "cuda/divide.hpp"

namespace convoy::cuda {

/// DepthwiseLayout as a launch takes it.
struct DepthwiseWalk {
  Divisor lanes, across;                              // threads of a CTA
  Divisor channel_blocks, column_blocks, row_blocks;  // CTAs
  int down = 0;

  DepthwiseWalk() = default;
  explicit DepthwiseWalk(const DepthwiseLayout& at)
      : lanes(at.lanes),
        across(at.across),
        channel_blocks(at.channel_blocks),
        column_blocks(at.column_blocks),
        row_blocks(at.row_blocks),
        down(at.down) {}
};

/// A thread's first channel, image, and first row and column of the convolution.
struct DepthwisePlace {
  int channel, n, p, q;
};
/// `count`: channels of a thread; rows x columns: its outputs.
CONVOY_HD DepthwisePlace depthwise_place(const DepthwiseWalk& g, int thread, int block, int count,
                                         int rows, int columns) {
  DepthwisePlace at;
  at.channel = g.lanes.reduce(thread);
  at.q = g.across.reduce(thread);
  at.channel = (g.channel_blocks.reduce(block) * static_cast<int>(g.lanes.d) + at.channel) * count;
  at.q = (g.column_blocks.reduce(block) * static_cast<int>(g.across.d) + at.q) * columns;
  at.p = (g.row_blocks.reduce(block) * g.down + thread) * rows;
  at.n = block;
  return at;
}

}  // namespace convoy::cuda
