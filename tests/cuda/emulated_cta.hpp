// A CTA on the host: code that is written for one lane of a warp, with what only a warp or a CTA
// can do behind a `Lane` (src/cuda/sm80/spike_resident.cuh), runs here lane by lane, without a GPU.
// Lanes take turns: each runs until it waits for others. A turn costs a longjmp: swapcontext, which
// asks the kernel for the signal mask, only starts a lane.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/sm80/spike_resident.cuh"
#include "math/half.hpp"

namespace convoy::cuda {

class EmulatedCta;

/// What LaneOnDevice is on a GPU.
struct EmulatedLane {
  unsigned char* shared;
  int thread, lane;
  EmulatedCta* cta;

  int threads() const;
  int warp() const { return thread / 32; }
  int warps() const { return threads() / 32; }
  void matrix(std::uint32_t (&x)[4], int row) const;
  void multiply_add(float (&sums)[4], const std::uint32_t (&x)[4],
                    const std::uint32_t (&w)[2]) const;
  void multiply_add_half(float (&sums)[4], const std::uint32_t (&x)[4], std::uint32_t w) const {
    multiply_add(sums, {x[0], x[1], 0, 0}, {w, 0});
  }
  std::uint32_t exchange(std::uint32_t bits, int lanes) const;
  void sync_team(int team, int threads) const;
  void sync_cta() const;
  std::uint32_t half_of(float value) const { return math::float_to_half(value); }
  template <int Pair>
  std::uint32_t two_pixels(std::uint32_t four) const {
    const auto half = [&](int i) {
      return half_of(static_cast<float>(four >> (16 * Pair + 8 * i) & 255));
    };
    return half(0) | half(1) << 16;
  }
  void prefetch(const void*) const {}
  sm80::WeightWords either(const sm80::WeightWords* from) const { return *from; }
  void fetch16(int to, const void* from) const { std::memcpy(shared + to, from, 16); }
  void end_fetch() const {}
  template <int Left>
  void wait_for_fetches() const {}
  void wait_for_previous_launch() const {}
  template <class T>
  T from_global(const T* from) const {
    return *from;
  }

  // Of a warpgroup.
  float exchange_float(float value, int lanes) const;
  std::uint32_t kept(std::uint32_t value) const { return value; }
  void publish() const {}
  void begin_products() const {}
  void end_products() const {}
  template <int Sums>
  void wait_for_products(float (&)[Sums]) const {}
  template <int N>
  void product(float (&sums)[N / 2], const std::uint32_t (&a)[4], int from, int offset,
               int unit_bytes, int group_bytes, bool keep) const;
};

class EmulatedCta {
 public:
  EmulatedCta(int threads, std::size_t shared_bytes)
      : shared_(shared_bytes + 16), lanes_(static_cast<std::size_t>(threads)) {}

  using Body = std::function<void(const EmulatedLane&)>;
  /// Throws where lanes wait for others that never come. Shared memory is NaN beforehand.
  void run(const Body& body) {
    std::fill(shared_.begin(), shared_.end(), static_cast<unsigned char>(0xff));
    body_ = &body;
    int left = threads();
    for (int i = 0; i < threads(); ++i) start(i);
    while (left > 0) {
      const std::uint64_t before = progress_;
      for (current_ = 0; current_ < threads(); ++current_) {
        Fiber& fiber = lanes_[static_cast<std::size_t>(current_)];
        if (fiber.done) continue;
        go_on(fiber);
        if (!fiber.done) continue;
        --left;
        ++progress_;
      }
      if (progress_ == before) throw std::logic_error("lanes wait for each other");
    }
  }

  int threads() const { return static_cast<int>(lanes_.size()); }

  /// Hands one struct to the lanes of the warp: what each of them gave, until the next but one.
  template <class T>
  std::array<const T*, 32> gather(int thread, const T& mine) {
    static_assert(sizeof(T) <= most_given && std::is_trivially_copyable_v<T>);
    Fiber& fiber = lanes_[static_cast<std::size_t>(thread)];
    const int side = fiber.operations++ & 1;
    fiber.bytes[side] = sizeof(T);
    std::memcpy(fiber.given[side], &mine, sizeof(T));
    wait(1000 + thread / 32, 32);
    std::array<const T*, 32> all;
    for (int i = 0; i < 32; ++i) {
      const Fiber& from = lanes_[static_cast<std::size_t>(thread / 32 * 32 + i)];
      if (from.bytes[side] != sizeof(T)) throw std::logic_error("lanes do different things");
      all[static_cast<std::size_t>(i)] = reinterpret_cast<const T*>(from.given[side]);
    }
    return all;
  }

  void wait(int barrier, int size) {
    Barrier& at = barriers_[static_cast<std::size_t>(barrier)];
    if (++at.there == size) {
      at.there = 0;
      ++at.generation;
      ++progress_;
      return;
    }
    const auto generation = at.generation;
    while (at.generation == generation) give_turn(lanes_[static_cast<std::size_t>(current_)]);
  }

 private:
  static constexpr std::size_t most_given = 64;
  struct Fiber {
    ucontext_t context;
    jmp_buf here;
    std::unique_ptr<char[]> stack;
    bool began = false, done = false;
    int operations = 0;
    std::size_t bytes[2] = {};
    alignas(16) char given[2][most_given];
  };
  struct Barrier {
    int there = 0;
    std::uint64_t generation = 0;
  };

  void go_on(Fiber& fiber) {
    if (_setjmp(home_) != 0) return;  // its turn is over
    if (fiber.began) _longjmp(fiber.here, 1);
    fiber.began = true;
    setcontext(&fiber.context);
  }
  void give_turn(Fiber& fiber) {
    if (_setjmp(fiber.here) == 0) _longjmp(home_, 1);
  }

  void start(int i) {
    constexpr std::size_t stack_bytes = 128 << 10;
    Fiber& fiber = lanes_[static_cast<std::size_t>(i)];
    fiber.began = fiber.done = false;
    if (!fiber.stack) fiber.stack = std::make_unique<char[]>(stack_bytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;  // it leaves by longjmp
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&EmulatedCta::enter), 3,
                static_cast<unsigned>(address), static_cast<unsigned>(address >> 32), i);
  }
  static void enter(unsigned low, unsigned high, int i) {
    auto* const cta = reinterpret_cast<EmulatedCta*>(static_cast<std::uintptr_t>(high) << 32 | low);
    auto* base = cta->shared_.data();
    base += (16 - reinterpret_cast<std::uintptr_t>(base) % 16) % 16;
    (*cta->body_)(EmulatedLane{base, i, i % 32, cta});
    cta->lanes_[static_cast<std::size_t>(i)].done = true;
    _longjmp(cta->home_, 1);
  }

  std::vector<unsigned char> shared_;
  std::vector<Fiber> lanes_;
  std::array<Barrier, 2100> barriers_;  // of the CTA, teams, and warps: from 1000 and 2000 on
  const Body* body_ = nullptr;
  jmp_buf home_;
  int current_ = 0;
  std::uint64_t progress_ = 0;
};

inline int EmulatedLane::threads() const {
  return cta->threads();
}

inline void EmulatedLane::matrix(std::uint32_t (&x)[4], int row) const {
  if (row % 16 != 0) throw std::logic_error("not on 16 bytes");
  const auto rows = cta->gather(thread, row);
  for (int block = 0; block < 4; ++block)
    std::memcpy(&x[block],
                shared + *rows[static_cast<std::size_t>(8 * block + lane / 4)] + 4 * (lane % 4), 4);
}

// As PTX's manual has the fragments of mma.m16n8k16; not by spike_resident_index.hpp, which this
// tests.
inline void EmulatedLane::multiply_add(float (&sums)[4], const std::uint32_t (&x)[4],
                                       const std::uint32_t (&w)[2]) const {
  struct Given {
    float x[4][2], w[2][2];
  };
  const auto halves = [](std::uint32_t two, float(&to)[2]) {
    to[0] = math::half_to_float(static_cast<std::uint16_t>(two));
    to[1] = math::half_to_float(static_cast<std::uint16_t>(two >> 16));
  };
  Given mine;
  for (int i = 0; i < 4; ++i) halves(x[i], mine.x[i]);
  for (int i = 0; i < 2; ++i) halves(w[i], mine.w[i]);
  const auto all = cta->gather(thread, mine);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    double sum = static_cast<double>(sums[i]);
    for (int k = 0; k < 16; ++k) {
      const Given& from_x = *all[static_cast<std::size_t>(row % 8 * 4 + k % 8 / 2)];
      const Given& from_w = *all[static_cast<std::size_t>(column * 4 + k % 8 / 2)];
      sum += static_cast<double>(from_x.x[row / 8 + 2 * (k / 8)][k % 2]) *
             static_cast<double>(from_w.w[k / 8][k % 2]);
    }
    sums[i] = static_cast<float>(sum);
  }
}

// As PTX's manual has the fragments of wgmma.m64nNk16, and matrices without swizzle. A warp has the
// rows of its own.
template <int N>
void EmulatedLane::product(float (&sums)[N / 2], const std::uint32_t (&a)[4], int from, int offset,
                           int unit_bytes, int group_bytes, bool keep) const {
  struct Given {
    std::uint32_t a[4];
  };
  if (from % 16 != 0 || offset % 16 != 0) throw std::logic_error("not on 16 bytes");
  Given mine;
  std::copy_n(a, 4, mine.a);
  const auto all = cta->gather(thread, mine);
  const auto half = [](std::uint32_t two, int i) {
    return static_cast<double>(math::half_to_float(static_cast<std::uint16_t>(two >> (16 * i))));
  };
  for (int i = 0; i < N / 2; ++i) {
    const int row = lane / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    double sum = keep ? static_cast<double>(sums[i]) : 0;
    for (int k = 0; k < 16; ++k) {
      const Given& of_row = *all[static_cast<std::size_t>(row % 8 * 4 + k % 8 / 2)];
      std::uint16_t b;
      std::memcpy(&b,
                  shared + from + offset + k / 8 * unit_bytes + column / 8 * group_bytes +
                      column % 8 * 16 + k % 8 * 2,
                  2);
      sum += half(of_row.a[k / 8 * 2 + row / 8], k % 2) * half(b, 0);
    }
    sums[i] = static_cast<float>(sum);
  }
}
inline float EmulatedLane::exchange_float(float value, int lanes) const {
  return *cta->gather(thread, value)[static_cast<std::size_t>(lane ^ lanes)];
}

inline std::uint32_t EmulatedLane::exchange(std::uint32_t bits, int lanes) const {
  return *cta->gather(thread, bits)[static_cast<std::size_t>(lane ^ lanes)];
}
inline void EmulatedLane::sync_team(int team, int size) const {
  cta->wait(size == 32 ? 2000 + thread / 32 : 1 + team, size);
}
inline void EmulatedLane::sync_cta() const {
  cta->wait(0, threads());
}

}  // namespace convoy::cuda
