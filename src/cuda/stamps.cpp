#include "cuda/stamps.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "convoy/error.hpp"

namespace convoy::cuda {
namespace {

constexpr double nanosecond = 1e-9;

// What a CTA did when, in nanoseconds of the device.
struct Marks {
  double begin = std::numeric_limits<double>::infinity(), first_math = begin;
  double last_math = 0, end = 0;
};

[[noreturn]] void missing(int cta, const char* what) {
  throw Error(fmt::format("trace: CTA {} {}. That is a bug in the traced kernel.", cta, what));
}

// Adds what overlaps nothing that was added before; intervals come by their begin.
double covered(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double sum = 0, until = 0;
  for (const auto& [begin, end] : intervals) {
    sum += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  return sum;
}

// Calls `span(track, what, begin, end, tile, part)` for each of a CTA's.
template <class Span>
Marks walk(const LaunchStamps& run, int cta, const AlignedClocks& clocks, Span span) {
  Marks marks;
  for (int track = 0; track < run.tracks; ++track) {
    const std::span<const Stamp> stamps = run.of(cta, track);
    if (stamps.empty() || static_cast<State>(stamps.back().state) != State::end)
      missing(cta, stamps.empty() ? "took no stamp" : "did not stamp its end: no room was left");
    const std::uint32_t sm = stamps.front().value;
    Index tile = -1;
    for (std::size_t i = 0; i < stamps.size(); ++i) {
      const auto state = static_cast<State>(stamps[i].state);
      const double begin = clocks.nanoseconds(sm, stamps[i].clock);
      marks.begin = std::min(marks.begin, begin);
      marks.end = std::max(marks.end, begin);
      if (state == State::placed || state == State::end) continue;
      const double end = clocks.nanoseconds(sm, stamps[i + 1].clock);
      const bool math = state == State::math;
      if (math) {
        marks.first_math = std::min(marks.first_math, begin);
        marks.last_math = std::max(marks.last_math, end);
      }
      if (state == State::tile) tile = stamps[i].value;
      const bool parts = math || state == State::wait || state == State::load;
      span(track, state, begin, end, tile, parts ? Index{stamps[i].value} : -1);
    }
  }
  return marks;
}

}  // namespace

const char* name_of(State state) {
  switch (state) {
    case State::placed:
      return "placed";
    case State::setup:
      return "setup";
    case State::run_before:
      return "run before";
    case State::tile:
      return "tile";
    case State::turn:
      return "turn";
    case State::wait:
      return "wait";
    case State::load:
      return "load";
    case State::math:
      return "math";
    case State::epilogue:
      return "epilogue";
    case State::store:
      return "store";
    case State::end:
      return "end";
  }
  return "?";
}

AlignedClocks::AlignedClocks(std::span<const SmClock> before, std::span<const SmClock> behind)
    : of_(std::min(before.size(), behind.size())) {
  int read = 0;
  for (std::size_t sm = 0; sm < of_.size(); ++sm) {
    if (before[sm].step == 0 || behind[sm].step == 0) continue;
    const ClockMoment &a = before[sm].last, &b = behind[sm].first;
    const std::int64_t cycles = b.cycles - a.cycles, nanoseconds = b.nanoseconds - a.nanoseconds;
    if (cycles <= 0 || nanoseconds <= 0)
      throw Error(fmt::format(
          "trace: the clock of multiprocessor {} moved by {} cycles in {} ns, expected more. Was "
          "the GPU reset?",
          sm, cycles, nanoseconds));
    of_[sm] = {a.cycles, a.nanoseconds,
               static_cast<double>(nanoseconds) / static_cast<double>(cycles)};
    hertz_ += static_cast<double>(cycles) / static_cast<double>(nanoseconds) / nanosecond;
    seconds_ += static_cast<double>(nanoseconds) * nanosecond;
    const std::int64_t step = std::min(before[sm].step, behind[sm].step);
    step_ = read == 0 ? step : std::min(step_, step);
    ++read;
  }
  if (read > 0) hertz_ /= read, seconds_ /= read;
}

double AlignedClocks::nanoseconds(std::uint32_t sm, std::int64_t cycles) const {
  if (sm >= of_.size() || of_[sm].rate == 0)
    throw Error(fmt::format("trace: the clock of multiprocessor {} was not read.", sm));
  // From the reading on in a double, which has room for both: the device's nanoseconds are counted
  // from years ago.
  const Line& line = of_[sm];
  return static_cast<double>(line.nanoseconds - of_.front().nanoseconds) +
         static_cast<double>(cycles - line.cycles) * line.rate;
}

std::span<const Stamp> LaunchStamps::of(int cta, int track) const {
  const auto first = static_cast<std::size_t>((Index{cta} * tracks + track) * capacity);
  const std::span<const Stamp> all =
      std::span(stamps).subspan(first, static_cast<std::size_t>(capacity));
  const auto none = std::find_if(all.begin(), all.end(), [](const Stamp& s) { return !s.clock; });
  return all.first(static_cast<std::size_t>(none - all.begin()));
}

RunTrace trace_of(const LaunchStamps& run, const LaunchStamps& before, const AlignedClocks& clocks,
                  std::span<const char* const> names) {
  RunTrace trace;
  trace.clock = fmt::format(
      "each multiprocessor's clock64 ({:.3f} GHz meanwhile), aligned by %globaltimer, which moves "
      "in steps of {} ns",
      clocks.hertz() * nanosecond, clocks.step());
  trace.hertz = clocks.hertz();
  trace.resolution = static_cast<double>(clocks.step()) * nanosecond;

  double begin = std::numeric_limits<double>::infinity(), end_before = 0, share = 0;
  std::vector<Marks> ctas;
  for (int cta = 0; cta < run.ctas; ++cta) {
    std::vector<std::pair<double, double>> math;
    const int first_track = static_cast<int>(trace.tracks.size());
    for (int track = 0; track < run.tracks; ++track) {
      const std::span<const Stamp> stamps = run.of(cta, track);
      if (stamps.empty()) missing(cta, "took no stamp");
      const int sm = static_cast<int>(stamps.front().value);
      trace.tracks.push_back(
          {sm, fmt::format("SM {}", sm), fmt::format("CTA {} {}", cta, names[track])});
    }
    ctas.push_back(
        walk(run, cta, clocks,
             [&](int track, State state, double from, double to, Index tile, Index part) {
               if (state == State::math) math.emplace_back(from, to);
               if (to > from)
                 trace.spans.push_back({first_track + track, name_of(state), from, to, tile, part});
             }));
    begin = std::min(begin, ctas.back().begin);
    if (math.empty()) continue;  // a CTA without a tile
    share += covered(math) / (ctas.back().last_math - ctas.back().first_math) / run.ctas;
  }
  for (int cta = 0; cta < before.ctas; ++cta)
    end_before = std::max(end_before, walk(before, cta, clocks, [](auto...) {}).end);

  for (RunTrace::Span& span : trace.spans) {
    span.begin = (span.begin - begin) * nanosecond;
    span.end = (span.end - begin) * nanosecond;
  }
  const Marks& last = *std::max_element(
      ctas.begin(), ctas.end(), [](const Marks& a, const Marks& b) { return a.end < b.end; });
  if (last.last_math == 0) missing(static_cast<int>(&last - ctas.data()), "did no math");
  trace.measured = {(last.first_math - begin) * nanosecond,
                    (last.last_math - last.first_math) * nanosecond,
                    (last.end - last.last_math) * nanosecond};
  trace.overlap = before.ctas > 0 ? std::max(0.0, end_before - begin) * nanosecond : 0;
  trace.math = share;
  return trace;
}

}  // namespace convoy::cuda
