// The ceilings: FMA rate and copy bandwidth.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/shared/measure.cpp"
#include "core/measure.hpp"

#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convoy::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Fourteen independent chains hide an FMA's latency on every machine known (2 units x 5 cycles =
// 10) and fit in 16 registers. The results go through `sink`, or the loop would be removed.
double FmaFlops(long rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999F), step = hn::Set(d, 0.001F);
  // Different starts: equal chains would be merged into one.
  const auto start = [&](float value) { return hn::Set(d, value + *sink); };
  auto a0 = start(1), a1 = start(2), a2 = start(3), a3 = start(4), a4 = start(5), a5 = start(6),
       a6 = start(7), a7 = start(8), b0 = start(9), b1 = start(10), b2 = start(11), b3 = start(12),
       b4 = start(13), b5 = start(14);
  for (long i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, factor, step), a1 = hn::MulAdd(a1, factor, step);
    a2 = hn::MulAdd(a2, factor, step), a3 = hn::MulAdd(a3, factor, step);
    a4 = hn::MulAdd(a4, factor, step), a5 = hn::MulAdd(a5, factor, step);
    a6 = hn::MulAdd(a6, factor, step), a7 = hn::MulAdd(a7, factor, step);
    b0 = hn::MulAdd(b0, factor, step), b1 = hn::MulAdd(b1, factor, step);
    b2 = hn::MulAdd(b2, factor, step), b3 = hn::MulAdd(b3, factor, step);
    b4 = hn::MulAdd(b4, factor, step), b5 = hn::MulAdd(b5, factor, step);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  const auto more = hn::Add(hn::Add(b0, b1), hn::Add(hn::Add(b2, b3), hn::Add(b4, b5)));
  *sink += 1e-30F * hn::GetLane(hn::Add(sum, more));
  return 2.0 * 14.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace convoy::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "convoy/error.hpp"
#include "core/buffer.hpp"
#include "core/failure.hpp"
#include "core/machine.hpp"

namespace convoy::cpu {
HWY_EXPORT(FmaFlops);
namespace {
// In the namespace of the function: with one instruction set (NEON) the macro is a plain call.
double fma_flops(long rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(FmaFlops)(rounds, sink);
}
}  // namespace
}  // namespace convoy::cpu

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

// Sum over threads of work/time, each thread timing itself once all have started. There is one
// `work` a thread, which holds whatever memory it needs: no thread allocates.
template <class Work>
double rate(std::vector<Work>& works, double seconds) {
  const auto threads = static_cast<int>(works.size());
  std::atomic<int> waiting{threads};
  std::atomic<bool> given_up{false};
  std::vector<double> rates(works.size());
  const auto body = [&](std::size_t thread) {
    Work& work = works[thread];
    work();  // pages, caches, clock
    --waiting;
    while (waiting.load() > 0 && !given_up.load()) std::this_thread::yield();
    if (given_up.load()) return;
    const auto begin = Clock::now();
    double done = 0, elapsed = 0;
    do {
      done += work();
      elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (elapsed < seconds);
    rates[thread] = done / elapsed;
  };
  {
    std::vector<std::jthread> others;  // joined when this block is left
    others.reserve(works.size());
    try {
      for (std::size_t thread = 1; thread < works.size(); ++thread)
        others.emplace_back(body, thread);
    } catch (const std::system_error& failure) {
      given_up = true;
      throw NoMemory(
          fmt::format("measuring this machine: only {} of {} threads could be started ({}). Raise "
                      "the limits of memory and processes (ulimit -v, ulimit -u), use fewer "
                      "threads, or don't measure.",
                      others.size() + 1, threads, failure.code().message()));
    }
    body(0);
  }
  double sum = 0;
  for (const double r : rates) sum += r;
  return sum;
}

std::size_t threads_of(int asked) {
  return static_cast<std::size_t>(std::clamp(asked, 1, usable_cores()));
}

struct Fma {
  float sink = 0;
  double operator()() {
    constexpr long rounds = 4000;  // some 10 us: the clock is read seldom
    return cpu::fma_flops(rounds, &sink);
  }
};

struct Copy {
  Buffer<char> from, to;
  bool filled = false;
  explicit Copy(std::size_t bytes) : from(bytes), to(bytes) {}
  double operator()() {
    // By the thread that copies: the pages then lie near it.
    if (!filled) std::memset(from.data(), 1, from.size());
    filled = true;
    std::memcpy(to.data(), from.data(), from.size());
    return 2.0 * static_cast<double>(from.size());
  }
};

}  // namespace

double measure_peak_flops(int threads, double seconds) {
  std::vector<Fma> works(threads_of(threads));
  return rate(works, seconds);
}

double measure_copy_bandwidth(int threads, double seconds) {
  // Of very many threads less each: together their blocks are still beyond every cache.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t most_half =
      1 << 20;  // seconds go by over its shadow, and no rate is true there
#else
  constexpr std::size_t most_half = 32 << 20;
#endif
  constexpr std::size_t most_in_all = std::size_t{4} << 30;
  const std::size_t count = threads_of(threads),
                    half = std::min(most_half, most_in_all / 2 / count);
  std::vector<Copy> works;
  try {
    works.reserve(count);
    for (std::size_t i = 0; i < count; ++i) works.emplace_back(half);
  } catch (const std::bad_alloc&) {
    throw NoMemory(
        fmt::format("measuring the copy bandwidth: no memory for {} MiB ({} threads). Raise the "
                    "limit of memory (ulimit -v), use fewer threads, or don't measure.",
                    2 * half * count >> 20, count));
  }
  return rate(works, seconds);
}

}  // namespace convoy
#endif
