#include "cpu/shared/filter_blocks.hpp"

#include <algorithm>

#include "math/divide.hpp"

namespace convoy::cpu {

using math::round_up;

std::vector<FilterBlock> filter_blocks(const Stage& stage, int vectors, const TileSizes& sizes) {
  std::vector<FilterBlock> blocks;
  const Index k_group = stage.k / stage.groups;
  const Index depth = stage.r * stage.s * (stage.c / stage.groups);
  std::size_t weights = 0, bias = 0;
  for (Index group = 0; group < stage.groups; ++group)
    for (Index k = 0; k < k_group;) {
      const Index left = k_group - k;
      int block_vectors = static_cast<int>(std::min<Index>(vectors, sizes.vectors_of(left)));
      if (left <= sizes.lanes / 2 && sizes.max_pixels[0] > 0) block_vectors = 0;
      const Index width = sizes.width(block_vectors);
      FilterBlock block{
          group, group * k_group + k, std::min(width, left), block_vectors, width, weights, bias};
      weights += static_cast<std::size_t>(round_up(depth * width, 16));
      bias += static_cast<std::size_t>(round_up(width, 16));
      k += block.count;
      blocks.push_back(block);
    }
  return blocks;
}

}  // namespace convoy::cpu
