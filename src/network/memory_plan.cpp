#include "network/memory_plan.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace convoy::network {
namespace {

Size rounded(Size bytes) {
  const Size up = bytes + 255;
  return up.fits() ? Size(up.value() / 256 * 256) : up;
}

bool together(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

using Order = std::vector<std::size_t>;

/// The sum of all that lives at the same time, at its largest: no plan takes less.
Size least_bytes(const std::vector<Lifetime>& tensors) {
  Size least;
  for (const Lifetime& one : tensors) {
    Size now;  // something begins to live at every moment that matters
    for (const Lifetime& other : tensors)
      if (other.first <= one.first && one.first <= other.last) now += rounded(other.bytes);
    least = std::max(least, now);
  }
  return least;
}

/// The tensors sorted by a measure, the largest first.
template <class Measure>
Order sorted_by(const std::vector<Lifetime>& tensors, const Measure& measure) {
  Order order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return measure(tensors[a]) > measure(tensors[b]);
  });
  return order;
}

}  // namespace

MemoryPlan plan_in_order(const std::vector<Lifetime>& tensors,
                         const std::vector<std::size_t>& order) {
  MemoryPlan plan{std::vector<Index>(tensors.size(), 0), 0};
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

MemoryPlan plan_memory(const std::vector<Lifetime>& tensors) {
  const Size least = least_bytes(tensors);
  MemoryPlan best = plan_in_order(
      tensors, sorted_by(tensors, [](const Lifetime& one) { return one.bytes.value(); }));
  const auto offer = [&](const Order& order) {
    MemoryPlan other = plan_in_order(tensors, order);
    if (other.bytes < best.bytes) best = std::move(other);
  };
  if (best.bytes > least)
    offer(sorted_by(tensors, [](const Lifetime& one) { return one.last - one.first; }));
  if (best.bytes > least)
    offer(sorted_by(tensors, [](const Lifetime& one) {
      return one.bytes.value() / 256 * (one.last - one.first + 1);
    }));
  // Few graphs come here. The same orders each time: a plan is the same on every machine.
  constexpr int more = 64;
  constexpr std::size_t few = 300;
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): see above
  Order order = sorted_by(tensors, [](const Lifetime& one) { return one.bytes.value(); });
  for (int i = 0; i < more && tensors.size() <= few && best.bytes > least; ++i) {
    // Neighbours in size change places.
    Order other = order;
    for (std::size_t k = 0; k + 1 < other.size(); ++k)
      if (random() % 3 == 0) std::swap(other[k], other[k + 1]);
    offer(other);
  }
  return best;
}

}  // namespace convoy::network
