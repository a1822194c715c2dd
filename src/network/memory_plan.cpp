#include "network/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace convoy::network {
namespace {

Size rounded(Size bytes) {
  const Size up = bytes + 255;
  return up.fits() ? Size(up.value() / 256 * 256) : up;
}

bool together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& tensors) {
  MemoryPlan plan{std::vector<Index>(tensors.size(), 0), 0};
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].bytes > tensors[b].bytes;
  });
  std::vector<std::size_t> placed;
  for (const std::size_t i : order) {
    const Size bytes = rounded(tensors[i].bytes);
    // What lives at the same time, from the lowest place up.
    std::vector<std::size_t> beside;
    for (const std::size_t j : placed)
      if (together(tensors[i], tensors[j])) beside.push_back(j);
    std::sort(beside.begin(), beside.end(),
              [&](std::size_t a, std::size_t b) { return plan.offset[a] < plan.offset[b]; });
    Size at;
    for (const std::size_t j : beside) {
      if (at + bytes <= Size(plan.offset[j])) break;
      at = std::max(at, Size(plan.offset[j]) + rounded(tensors[j].bytes));
    }
    plan.offset[i] = at.value();
    plan.bytes = std::max(plan.bytes, at + bytes);
    placed.push_back(i);
  }
  return plan;
}

}  // namespace convoy::network
