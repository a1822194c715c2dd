// Time stamps that a traced kernel takes of itself: what one is, and how the host reads them.
//
// A stamp says: from now on this track is in that state. It holds the multiprocessor's own cycle
// counter (clock64), the cheapest clock there is and one that tells single cycles. Counters of two
// multiprocessors have nothing to do with each other, and count cycles of a clock that changes: so
// a kernel that runs alone (read_clocks) reads each of them together with %globaltimer, the one
// clock of the device, before the runs and behind them. %globaltimer moves in steps (1 us on older
// GPUs, 32 ns on those measured here): it is read at the very moment of a step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/trace.hpp"

namespace convoy::cuda {

/// What a track does from a stamp on.
enum class State : std::uint32_t {
  placed,      // no state: the value is the multiprocessor that the CTA is on
  setup,       // barriers, descriptors, constants
  run_before,  // waits for the run before to end
  tile,        // begins a tile (the value): where it lies, its bias
  turn,        // waits for the other warpgroup
  wait,        // waits for a slot or slab (the value): to be full, or empty again
  load,        // asks for the slot or slab (the value)
  math,        // multiplies a slab (the value)
  epilogue,    // from accumulators to memory
  store,       // waits for the last store to have read its buffer
  end
};
const char* name_of(State state);

struct Stamp {
  std::int64_t clock = 0;  // cycles; 0: there is none
  std::uint32_t state = 0, value = 0;
};

/// Where a traced launch writes: [CTAs][tracks][capacity], zero before.
struct StampBuffer {
  Stamp* stamps = nullptr;  // on the device
  int tracks = 0, capacity = 0;
};

/// A multiprocessor's cycles and the device's nanoseconds at one moment.
struct ClockMoment {
  std::int64_t cycles = 0, nanoseconds = 0;
};
/// Two of a multiprocessor: what ran before the reading ended at the first, what runs behind it
/// begins at the last. Between them the GPU idles, and its clock may rise.
struct SmClock {
  ClockMoment first, last;
  std::int64_t step = 0;  // of %globaltimer, the least that was seen; 0: nothing was written
};
/// More multiprocessors than any GPU has, or numbers.
inline constexpr int most_sms = 1024;

/// Enqueues the reading of the clocks of a device's `sms` multiprocessors, by their numbers, into
/// [most_sms] of device memory, zero before. It lasts some microseconds.
cudaError_t read_clocks(SmClock* of, int sms, cudaStream_t stream) noexcept;

/// Cycles of every multiprocessor as nanoseconds of the device.
class AlignedClocks {
 public:
  /// Of readings before and behind what is to be placed. Throws Error where they make no sense.
  AlignedClocks(std::span<const SmClock> before, std::span<const SmClock> behind);
  /// Throws Error for a multiprocessor that was not read.
  double nanoseconds(std::uint32_t sm, std::int64_t cycles) const;
  // Between the readings, in the mean of the multiprocessors.
  double hertz() const { return hertz_; }
  double seconds() const { return seconds_; }
  std::int64_t step() const { return step_; }

 private:
  struct Line {
    std::int64_t cycles = 0, nanoseconds = 0;
    double rate = 0;  // nanoseconds a cycle; 0: this multiprocessor was not read
  };
  std::vector<Line> of_;
  double hertz_ = 0, seconds_ = 0;
  std::int64_t step_ = 0;
};

/// The stamps of one launch, on the host, in its StampBuffer's shape.
struct LaunchStamps {
  std::vector<Stamp> stamps;
  int ctas = 0, tracks = 0, capacity = 0;
  std::span<const Stamp> of(int cta, int track) const;
};

/// A run by its stamps. The phases are those of the CTA that ended last; `before`: the launch
/// before it on the stream. `names`: of a CTA's tracks. Throws Error where stamps are missing.
RunTrace trace_of(const LaunchStamps& run, const LaunchStamps& before, const AlignedClocks& clocks,
                  std::span<const char* const> names);

}  // namespace convoy::cuda
