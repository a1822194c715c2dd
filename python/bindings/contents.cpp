// convoy._core.Contents: a fingerprint of memory, by which convoy.torch sees that weights have changed. PyTorch's
// version counters do not move with every write (fused optimizers, aliases, other processes, NumPy).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../python/bindings/contents.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: from here on this file is compiled once for each instruction set.
#include <hwy/highway.h>
#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "core/process.hpp"
#include "openmp.hpp"

#ifndef CONVOY_PYTHON_CONTENTS
#define CONVOY_PYTHON_CONTENTS
namespace convoy::python {

// The hash is NH of UMAC (RFC 4418, 5.2.2): a block's 32-bit words, a key's word added to each, are multiplied in
// pairs and summed in 64 bits. Two blocks that differ have the same sum for at most one in 2^32 keys. Four sums with the
// key shifted (Toeplitz's construction) make that one in 2^128, whatever the blocks are, as long as the key is not
// known to who writes them: it is drawn when the process first needs it.
constexpr std::size_t block_bytes = 4096, sums = 4, widest = 64;
using Sums = std::array<std::uint64_t, sums>;
struct Key {
  alignas(widest) std::array<std::uint32_t, (block_bytes + (sums - 1) * widest) / 4> words;
};

}  // namespace convoy::python
#endif

HWY_BEFORE_NAMESPACE();
namespace convoy::python::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The sums of a block of which `bytes` are at `from`; behind them it counts as zeros.
void hash(const std::uint8_t* from, std::size_t bytes, const Key& key, Sums& result) {
#if HWY_TARGET == HWY_SCALAR  // without vectors; of two words at a time
  result = {};
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::array<std::uint32_t, 2> words{};
    std::memcpy(words.data(), from + i, std::min<std::size_t>(8, bytes - i));
    for (std::size_t shift = 0; shift < sums; ++shift) {
      const std::uint32_t* const with = key.words.data() + i / 4 + shift * 2;
      result[shift] += std::uint64_t{words[0] + with[0]} * (words[1] + with[1]);
    }
  }
#else
  const hn::CappedTag<std::uint32_t, widest / 4> d;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  const hn::Repartition<std::uint8_t, decltype(d)> d8;
  const std::size_t step = hn::Lanes(d) * 4;
  auto s0 = hn::Zero(d64), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](auto& sum, auto words, std::size_t at, std::size_t shift) HWY_ATTR {
    const auto mixed = hn::Add(words, hn::Load(d, key.words.data() + at / 4 + shift * hn::Lanes(d)));
    sum = hn::Add(sum, hn::MulEven(mixed, hn::Shuffle2301(mixed)));
  };
  const auto take = [&](auto words, std::size_t at) HWY_ATTR {
    add(s0, words, at, 0), add(s1, words, at, 1), add(s2, words, at, 2), add(s3, words, at, 3);
  };
  std::size_t i = 0;
  for (; i + step <= bytes; i += step) take(hn::BitCast(d, hn::LoadU(d8, from + i)), i);
  if (i < bytes) {
    alignas(widest) std::array<std::uint8_t, widest> last{};
    std::memcpy(last.data(), from + i, bytes - i);
    take(hn::BitCast(d, hn::Load(d8, last.data())), i);
  }
  std::size_t at = 0;
  for (const auto sum : {s0, s1, s2, s3}) result[at++] = hn::GetLane(hn::SumOfLanes(d64, sum));
#endif
}

}  // namespace convoy::python::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nb = nanobind;

namespace convoy::python {
namespace {

HWY_EXPORT(hash);

const Key& key() {
  static constinit Immortal<Key> kept;
  return kept.get([] {
    std::random_device random;
    Key made;
    for (auto& word : made.words) word = random();
    return made;
  });
}

constexpr std::size_t blocks_at_once = 16, worth_threads = std::size_t{512} << 10;

/// The sums of each block of some memory. Nothing of it changes once it is made, so that threads need no lock and a
/// forked child finds none taken.
class Contents {
 public:
  Contents(std::uintptr_t address, std::size_t bytes, int threads) : bytes_(bytes) {
    key();
    const nb::gil_scoped_release released;
    sums_.resize(blocks());
    each_block(address, threads, [this](std::size_t block, const Sums& found) {
      sums_[block] = found;
      return true;
    });
  }

  bool same(std::uintptr_t address, std::size_t bytes, int threads) const {
    if (bytes != bytes_) return false;
    const auto equal = [this](std::size_t block, const Sums& found) { return sums_[block] == found; };
    if (bytes < block_bytes * blocks_at_once) return each_block(address, 1, equal);
    const nb::gil_scoped_release released;
    return each_block(address, threads, equal);
  }

 private:
  std::size_t blocks() const { return (bytes_ + block_bytes - 1) / block_bytes; }

  /// Gives each block's sums to `take`, in any order, until it returns false; whether it never did.
  template <class Take>
  bool each_block(std::uintptr_t address, int threads, const Take& take) const {
    struct Work {
      const Contents& self;
      const std::uint8_t* from;
      const Take& take;
      std::atomic<std::size_t> next{0};
      std::atomic<bool> right{true};
    } work{*this, reinterpret_cast<const std::uint8_t*>(address), take};
    // Blocks are shared out as threads come: there may be fewer than were asked for.
    const auto body = [](void* context, int) {
      Work& its = *static_cast<Work*>(context);
      const Key& with = key();
      const std::size_t bytes = its.self.bytes_, end = its.self.blocks();
      while (its.right.load(std::memory_order_relaxed)) {
        const std::size_t first = its.next.fetch_add(blocks_at_once, std::memory_order_relaxed);
        if (first >= end) return;
        for (std::size_t block = first; block < std::min(end, first + blocks_at_once); ++block) {
          const std::size_t at = block * block_bytes;
          Sums found;
          HWY_DYNAMIC_DISPATCH(hash)(its.from + at, std::min(block_bytes, bytes - at), with, found);
          if (!its.take(block, found)) its.right.store(false, std::memory_order_relaxed);
        }
      }
    };
    const CallerThreads pool = threads > 1 && bytes_ >= worth_threads ? openmp_threads() : nullptr;
    if (pool)
      pool(threads, body, &work);
    else
      body(&work, 0);
    return work.right.load(std::memory_order_relaxed);
  }

  std::size_t bytes_;
  std::vector<Sums> sums_;
};

}  // namespace

void define_contents(nb::module_& module) {
  nb::class_<Contents>(module, "Contents",
                       "What is in memory now, as 32 bytes for each 4,096: other contents pass for the same with a\n"
                       "probability of 2^-128.\n\n"
                       "address, bytes: memory that the caller keeps alive during the call. threads: of the OpenMP\n"
                       "runtime that the process has, at most.")
      .def(nb::init<std::uintptr_t, std::size_t, int>(), nb::arg("address"), nb::arg("bytes"),
           nb::arg("threads") = 1)
      .def("same", &Contents::same, nb::arg("address"), nb::arg("bytes"), nb::arg("threads") = 1,
           "Whether that memory holds the same.");
}

}  // namespace convoy::python
#endif
