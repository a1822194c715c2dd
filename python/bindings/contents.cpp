// convoy._core.Contents: a fingerprint of memory, by which convoy.torch sees that weights have
// changed. PyTorch's version counters do not move with every write (fused optimizers, aliases,
// other processes, NumPy).
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
#include <random>
#include <unordered_set>
#include <vector>

#include "arrays.hpp"
#include "core/process.hpp"
#include "exchange.hpp"
#include "openmp.hpp"
#include "written_pages.hpp"

#ifndef CONVOY_PYTHON_CONTENTS
#define CONVOY_PYTHON_CONTENTS
namespace convoy::python {

// The hash is NH of UMAC (RFC 4418, 5.2.2): a block's 32-bit words, a key's word added to each, are
// multiplied in pairs and summed in 64 bits. Two blocks that differ have the same sum for at most
// one in 2^32 keys. Four sums with the key shifted (Toeplitz's construction) make that one in
// 2^128, whatever the blocks are, as long as the key is not known to who writes them: it is drawn
// when the process first needs it.
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
    const auto mixed =
        hn::Add(words, hn::Load(d, key.words.data() + at / 4 + shift * hn::Lanes(d)));
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
// Of less the kernel is not asked: a block is hashed in a sixth of a microsecond.
constexpr std::size_t worth_asking = std::size_t{32} << 10;

/// The sums of each block of some memory, and which blocks may have changed since they were
/// compared. With the GIL, except while blocks are hashed.
class Contents {
 public:
  Contents(std::uintptr_t address, std::size_t bytes, bool asks, int threads)
      : address_(address), bytes_(bytes), asks_(asks && bytes >= worth_asking) {
    key();
    sums_.resize(count_of_blocks());
    if (asks_) {
      marks_.resize(count_of_blocks()), compared_.resize(count_of_blocks());
      watched().insert(this);  // nothing throws from here on, which would leave it there
    }
    ask();  // what is written from here on is found by the next one
    std::copy(marks_.begin(), marks_.end(), compared_.begin());
    hash_all(threads, [this](std::size_t block, const Sums& found) {
      sums_[block] = found;
      return true;
    });
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  ~Contents() { watched().erase(this); }

  bool same(std::uintptr_t address, std::size_t bytes, int threads) {
    if (bytes != bytes_) return false;
    if (address != address_) {
      address_ = address;
      watch_ = {};
      for (std::uint32_t& mark : marks_) ++mark;
    }
    const auto equal = [this](std::size_t block, const Sums& found) {
      return sums_[block] == found;
    };
    if (!ask()) return hash_all(threads, equal);
    std::vector<Marked> blocks = marked();
    const bool right = hash(
        blocks.size(), threads, [&](std::size_t i) { return blocks[i].block; }, equal);
    // What another thread has found written meanwhile stays marked.
    if (right)
      for (const Marked& one : blocks) compared_[one.block] = one.mark;
    return right;
  }

  std::size_t bytes() const { return bytes_; }

 private:
  struct Marked {
    std::size_t block;
    std::uint32_t mark;
  };

  /// All that there are: a page that one of them finds written has been for the others, too.
  static std::unordered_set<Contents*>& watched() {
    static auto* const all = new std::unordered_set<Contents*>;
    return *all;
  }

  std::size_t count_of_blocks() const { return (bytes_ + block_bytes - 1) / block_bytes; }

  /// Marks what has been written to. False where the kernel doesn't tell: then all may have been.
  bool ask() {
    return asks_ && written_pages(first_page(), last_page(), watch_, [](auto begin, auto end) {
             for (Contents* const one : watched()) one->mark(begin, end);
           });
  }

  void mark(std::uintptr_t begin, std::uintptr_t end) {
    if (end <= address_ || begin >= address_ + bytes_) return;
    const std::size_t from = std::max(begin, address_) - address_,
                      to = std::min(end, address_ + bytes_) - address_;
    for (std::size_t block = from / block_bytes; block * block_bytes < to; ++block) ++marks_[block];
  }

  /// The blocks that have to be compared: those marked, and the ends, which share pages with what
  /// lies beside them and are never asked for.
  std::vector<Marked> marked() const {
    const std::size_t inner = (first_page() - address_ + block_bytes - 1) / block_bytes,
                      last = (last_page() - address_) / block_bytes;
    std::vector<Marked> blocks;
    for (std::size_t block = 0; block < marks_.size(); ++block)
      if (block < inner || block >= last || marks_[block] != compared_[block])
        blocks.push_back({block, marks_[block]});
    return blocks;
  }

  std::uintptr_t first_page() const {
    return (address_ + page_bytes - 1) / page_bytes * page_bytes;
  }
  std::uintptr_t last_page() const { return (address_ + bytes_) / page_bytes * page_bytes; }

  template <class Take>
  bool hash_all(int threads, const Take& take) const {
    return hash(
        count_of_blocks(), threads, [](std::size_t i) { return i; }, take);
  }

  /// Gives the sums of so many blocks to `take`, in any order, until it returns false; whether it
  /// never did. block_of(i): which block the i-th is.
  template <class BlockOf, class Take>
  bool hash(std::size_t count, int threads, const BlockOf& block_of, const Take& take) const {
    struct Work {
      const std::uint8_t* from;
      std::size_t bytes, count;
      const BlockOf& block_of;
      const Take& take;
      std::atomic<std::size_t> next{0};
      std::atomic<bool> right{true};
    } work{reinterpret_cast<const std::uint8_t*>(address_), bytes_, count, block_of, take};
    // Blocks are shared out as threads come: there may be fewer than were asked for.
    const auto body = [](void* context, int) {
      Work& its = *static_cast<Work*>(context);
      const Key& with = key();
      while (its.right.load(std::memory_order_relaxed)) {
        const std::size_t first = its.next.fetch_add(blocks_at_once, std::memory_order_relaxed);
        if (first >= its.count) return;
        for (std::size_t i = first; i < std::min(its.count, first + blocks_at_once); ++i) {
          const std::size_t block = its.block_of(i), at = block * block_bytes;
          const std::size_t size = std::min(block_bytes, its.bytes - at);
          Sums found;
          HWY_DYNAMIC_DISPATCH(hash)(its.from + at, size, with, found);
          if (!its.take(block, found)) its.right.store(false, std::memory_order_relaxed);
        }
      }
    };
    if (count < blocks_at_once) {
      body(&work, 0);
      return work.right.load(std::memory_order_relaxed);
    }
    const nb::gil_scoped_release released;
    const bool shared = threads > 1 && count * block_bytes >= worth_threads;
    if (const CallerThreads pool = shared ? openmp_threads() : nullptr)
      pool(threads, body, &work);
    else
      body(&work, 0);
    return work.right.load(std::memory_order_relaxed);
  }

  std::uintptr_t address_;
  std::size_t bytes_;
  bool asks_;
  PageWatch watch_;
  std::vector<Sums> sums_;
  // How often each block was found written, and how often it had been when it was last compared.
  std::vector<std::uint32_t> marks_, compared_;
};

/// Whether tensors of PyTorch hold what their contents say; None is passed over. They have the
/// sizes and strides that they had.
bool all_same(const nb::tuple& contents, const nb::tuple& tensors, int threads) {
  std::size_t at = 0;
  for (const nb::handle tensor : tensors) {
    if (tensor.is_none()) continue;
    const ArrayType& type = type_of(tensor);
    if (at == contents.size() || !type.exchange || !type.exchange->borrow) return false;
    dlpack::Array lent{};
    if (type.exchange->borrow(tensor.ptr(), &lent) != 0) throw nb::python_error();
    auto& one = nb::cast<Contents&>(contents[at++]);
    if (!one.same(reinterpret_cast<std::uintptr_t>(lent.data) + lent.byte_offset, one.bytes(),
                  threads))
      return false;
  }
  return at == contents.size();
}

}  // namespace

void define_contents(nb::module_& module) {
  nb::class_<Contents>(
      module, "Contents",
      "A fingerprint of memory: 32 bytes for each 4,096 bytes.\n\n"
      "Other contents have the same fingerprint with a probability of 2^-128.\n\n"
      "Args:\n"
      "    address: The first byte. The caller keeps the memory alive during each call.\n"
      "    bytes: The size of the memory.\n"
      "    asks: Ask the kernel which pages were written to, and read only those again. It\n"
      "        must be False for memory that a device writes by itself.\n"
      "    threads: The largest number of threads, of the OpenMP runtime that the process has.\n")
      .def(nb::init<std::uintptr_t, std::size_t, bool, int>(), nb::arg("address"), nb::arg("bytes"),
           nb::arg("asks") = true, nb::arg("threads") = 1)
      .def("same", &Contents::same, nb::arg("address"), nb::arg("bytes"), nb::arg("threads") = 1,
           "Returns whether that memory has the same content.");
  module.def(
      "_all_same", &all_same, nb::arg("contents"), nb::arg("tensors"), nb::arg("threads"),
      "Returns whether PyTorch tensors, whose sizes and strides have not changed, still have "
      "the content that the fingerprints describe. A tensor that is None is skipped.");
  module.def("_ask_kernel_for_pages", &ask_kernel_for_pages, nb::arg("ask"),
             "For tests: sets whether Contents asks the kernel which pages were written to.");
}

}  // namespace convoy::python
#endif
