// How a stage's filters are cut into blocks for register tiles, and where each block's packed
// weights begin.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu/shared/tile_sizes.hpp"

namespace convoy::cpu {

struct FilterBlock {
  Index group = 0, first = 0, count = 0;  // filters [first, first + count)
  int vectors = 0;
  Index width = 0;
  std::size_t weights = 0;  // where its packed weights begin, floats
  std::size_t bias = 0;     // the same for its padded bias
};

/// Blocks of at most `vectors` vectors that cover a stage's K, group by group.
std::vector<FilterBlock> filter_blocks(const Stage& stage, int vectors, const TileSizes& sizes);

}  // namespace convoy::cpu
