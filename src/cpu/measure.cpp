// The ceilings: FMA rate and copy bandwidth.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/measure.cpp"
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
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "core/buffer.hpp"

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

// Sum over threads of work/time, each thread timing itself once all have started.
template <class Work>
double rate(int threads, double seconds, const Work& work) {
  std::atomic<int> waiting{threads};
  std::vector<double> rates(static_cast<std::size_t>(threads));
  const auto body = [&](int thread) {
    auto state = work();
    state();  // pages, caches, clock
    --waiting;
    while (waiting.load() > 0) std::this_thread::yield();
    const auto begin = Clock::now();
    double done = 0, elapsed = 0;
    do {
      done += state();
      elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (elapsed < seconds);
    rates[static_cast<std::size_t>(thread)] = done / elapsed;
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double r : rates) sum += r;
  return sum;
}

}  // namespace

double measure_peak_flops(int threads, double seconds) {
  return rate(threads, seconds, [] {
    return [sink = 0.0F]() mutable {
      constexpr long rounds = 4000;  // some 10 us: the clock is read seldom
      return cpu::fma_flops(rounds, &sink);
    };
  });
}

double measure_copy_bandwidth(int threads, double seconds) {
  return rate(threads, seconds, [] {
    constexpr std::size_t half = 32 << 20;
    Buffer<char> from(half), to(half);
    std::memset(from.data(), 1, half);
    return [from = std::move(from), to = std::move(to)]() {
      std::memcpy(to.data(), from.data(), half);
      return 2.0 * static_cast<double>(half);
    };
  });
}

}  // namespace convoy
#endif
