// Where the tensors between the steps of a network lie: one block of memory, in which tensors that
// live at different times share a place.
#pragma once

#include <vector>

#include "core/size.hpp"

namespace convoy::network {

/// A tensor that step `first` writes and step `last` is the last to read. Steps count from 0; what
/// is there before the first has first = -1.
struct Lifetime {
  Size bytes;
  Index first = 0, last = 0;
};

struct MemoryPlan {
  std::vector<Index> offset;  // of each tensor, multiples of 256
  Size bytes;                 // of the block; "too large" where it does not fit
};

/// Each tensor of `order` in turn at the lowest place that nothing holds which lives at the same
/// time.
MemoryPlan plan_in_order(const std::vector<Lifetime>& tensors,
                         const std::vector<std::size_t>& order);

/// The best of several orders, the largest first among them. No more than the sum of all; for a
/// chain the largest pair of neighbours.
MemoryPlan plan_memory(const std::vector<Lifetime>& tensors);

}  // namespace convoy::network
