#include "plan/shared_weights.hpp"

#include <bit>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "core/process.hpp"

namespace convoy {
namespace {

constexpr std::uint64_t prime = (std::uint64_t{1} << 61) - 1;

std::uint64_t multiply_add(std::uint64_t hash, std::uint64_t point, std::uint64_t more) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(hash) * point + more;
  const auto low = static_cast<std::uint64_t>(product & prime),
             high = static_cast<std::uint64_t>(product >> 61);
  const std::uint64_t sum = low + high;
  return sum >= prime ? sum - prime : sum;
}

struct Points {
  std::uint64_t a, b;
};
/// Drawn once per process: nobody can make contents that meet there.
const Points& points() {
  static constinit Immortal<Points> drawn;
  return drawn.get([] {
    std::random_device device;
    const auto draw = [&] {
      return (static_cast<std::uint64_t>(device()) << 29 ^ device()) % (prime - 1) + 1;
    };
    return Points{draw(), draw()};
  });
}

ContentHash hash_of(const Chain& chain, std::span<const Parameters> all) {
  ContentHash hash;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Stage& stage = chain[i];
    hash.add(0, all[i].w, static_cast<std::size_t>(shapes_of(stage).w_elements));
    if (all[i].bias) hash.add(1, all[i].bias, static_cast<std::size_t>(stage.k));
    if (all[i].values) hash.add(2, all[i].values, static_cast<std::size_t>(stage.c) * 256);
  }
  return hash;
}

using Key = std::tuple<std::string, ContentHash>;
constinit Shared<std::map<Key, std::weak_ptr<const PackedWeights>>> packed;

}  // namespace

void ContentHash::add(std::uint64_t kind, const float* numbers, std::size_t count) {
  const auto [at_a, at_b] = points();
  const std::uint64_t head = std::uint64_t{4} * count + kind + 1;
  a = multiply_add(a, at_a, head);
  b = multiply_add(b, at_b, head);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = std::bit_cast<std::uint32_t>(numbers[i]);
    a = multiply_add(a, at_a, bits);
    b = multiply_add(b, at_b, bits);
  }
}

std::shared_ptr<const PackedWeights> packed_once(const Bound& bound,
                                                 std::span<const Parameters> all) {
  const Key key{bound.packing(), hash_of(bound.chain(), all)};
  {
    const auto known = packed.lock();
    if (const auto found = known->find(key); found != known->end())
      if (std::shared_ptr<const PackedWeights> weights = found->second.lock()) return weights;
  }
  std::shared_ptr<const PackedWeights> made = bound.pack(all);
  const auto known = packed.lock();
  std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
  (*known)[key] = made;
  return made;
}

}  // namespace convoy
