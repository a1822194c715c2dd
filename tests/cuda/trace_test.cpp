// Traced runs on a GPU: stamps as the host reads them, and the kernel that takes them.
#include "plan/trace.hpp"

#include <gtest/gtest.h>

#include <array>

#include "convoy/error.hpp"
#include "cuda/stamps.hpp"
#include "gpu_case.hpp"

namespace convoy::cuda {
namespace {

constexpr std::array names{"consumer", "producer"};

/// Two multiprocessors whose counters have nothing in common: 2 GHz and 1 GHz.
AlignedClocks two_clocks() {
  std::vector<SmClock> before(most_sms), behind(most_sms);
  before[0] = {{}, {1'000, 5'000'000}, 32}, behind[0] = {{21'000, 5'010'000}, {}, 32};
  before[7] = {{}, {900'000, 5'000'100}, 64}, behind[7] = {{910'000, 5'010'100}, {}, 32};
  return {before, behind};
}

Stamp stamp(std::int64_t clock, State state, std::uint32_t value = 0) {
  return {clock, static_cast<std::uint32_t>(state), value};
}

/// One CTA on multiprocessor `sm`, its stamps of both tracks.
LaunchStamps launch_of(std::vector<std::vector<Stamp>> tracks, int ctas = 1) {
  LaunchStamps launch{{}, ctas, 2, 10};
  for (auto& track : tracks) {
    track.resize(10);
    launch.stamps.insert(launch.stamps.end(), track.begin(), track.end());
  }
  return launch;
}

TEST(Stamps, ClocksAreAligned) {
  const AlignedClocks clocks = two_clocks();
  EXPECT_EQ(clocks.step(), 32);
  EXPECT_DOUBLE_EQ(clocks.hertz(), 1.5e9);
  EXPECT_NEAR(clocks.seconds(), 1e-5, 1e-15);
  // The same moment, 5,005,100 ns, on both.
  EXPECT_NEAR(clocks.nanoseconds(0, 11'200), clocks.nanoseconds(7, 905'000), 1e-6);
  EXPECT_THROW(static_cast<void>(clocks.nanoseconds(1, 0)), Error);
  EXPECT_THROW(static_cast<void>(clocks.nanoseconds(4'000, 0)), Error);
  std::vector<SmClock> stopped(1);
  stopped[0] = {{5, 5}, {5, 5}, 1};
  EXPECT_THROW(AlignedClocks(stopped, stopped), Error);
}

TEST(Stamps, MakeHeadLoopAndTail) {
  using enum State;
  // On multiprocessor 0 from 1,000 ns on (a cycle is half a nanosecond), on 7 from 1,100 ns on.
  const LaunchStamps run = launch_of(
      {{stamp(3'000, placed, 0), stamp(3'000, setup), stamp(3'200, tile, 4), stamp(3'200, wait, 0),
        stamp(3'400, math, 0), stamp(3'600, wait, 1), stamp(3'700, math, 1), stamp(4'000, epilogue),
        stamp(4'300, end)},
       {stamp(3'010, placed, 0), stamp(3'010, setup), stamp(3'100, load, 3), stamp(3'500, end)},
       {stamp(901'000, placed, 7), stamp(901'000, setup), stamp(901'100, tile, 5),
        stamp(901'150, math, 0), stamp(901'700, epilogue), stamp(901'900, end)},
       {stamp(901'000, placed, 7), stamp(901'001, end)}},
      2);
  const LaunchStamps before = launch_of(
      {{stamp(2'000, placed, 0), stamp(3'100, end)}, {stamp(2'000, placed, 0), stamp(3'000, end)}});
  const RunTrace trace = trace_of(run, before, two_clocks(), names);
  // CTA 1 ends last: it began 100 ns behind the first, and multiplies from 250 to 800 ns.
  EXPECT_NEAR(trace.measured.head, 250e-9, 1e-15);
  EXPECT_NEAR(trace.measured.loop, 550e-9, 1e-15);
  EXPECT_NEAR(trace.measured.tail, 200e-9, 1e-15);
  EXPECT_NEAR(trace.overlap, 50e-9, 1e-15);
  EXPECT_NEAR(trace.math, (250.0 / 300 + 1) / 2, 1e-12);
  ASSERT_EQ(trace.tracks.size(), 4U);
  EXPECT_EQ(trace.tracks[2].in, "SM 7");
  EXPECT_EQ(trace.tracks[3].is, "CTA 1 producer");
  // `tile` of no length is left out.
  ASSERT_EQ(trace.spans.size(), 6U + 2U + 4U);
  EXPECT_STREQ(trace.spans[1].what, "wait");
  EXPECT_EQ(trace.spans[1].tile, 4);
  EXPECT_EQ(trace.spans[4].part, 1);
  EXPECT_EQ(trace.spans[7].part, 3);

  LaunchStamps cut = run;
  cut.stamps[8] = {};
  EXPECT_THROW(static_cast<void>(trace_of(cut, before, two_clocks(), names)), Error);
}

class GpuTrace : public GpuTest {};

/// A traced run by `halo` on this tile.
TracedStage traced(const std::string& stage, const std::string& tile) {
  return trace_stage(parse_stage(stage), options_for(gpu0, "halo", tile), 0);
}

// Every compiled accumulator and pool, schedules, resident weights, deep slots, several tiles a
// CTA, and CTAs without a second tile.
TEST_F(GpuTrace, TracedHaloGivesTheSameBits) {
  for (const auto& [stage, tile] : {
           std::pair("f16:n40h32c64k136r3pad1+bias+relu", "8x28x1.channels"),
           {"f16:n40h32c64k136r3pad1+bias+relu+max2", "8x28x1.pingpong"},
           {"f16:n9h30w34c72k72r3pad1+bias+relu", "16x16x1.pingpong"},
           {"f16:n9h30w34c72k72r3pad1+bias+relu+max2", "16x16x1.pingpong"},
           {"f16:n40h16c72k136r3pad1+relu+max2", "16x2x8n.channels"},
           {"f16:n40h14c72k136r3pad1+relu+max2", "14x2x8n.pingpong"},
           {"f16:n40h14c72k136r3pad1+relu", "14x2x8n.rows"},
           {"f16:n40h28w32c64k72r3pad1+bias+relu6+max2", "16x14x1.pingpong"},
           {"f16:n40h32c64k64r3pad1+relu+max2", "8x16x1.pingpong.resident"},
           {"f16:n40h8c128k128r3pad1+bias+relu+max2", "8x8x1.pingpong.deep2"},
           {"f16:n40h8c256k128r3pad1+bias", "8x8x1.pingpong"},
           {"f16:n1h9w13c512k72r1+bias+relu", "line32.pingpong.deep4"},
           {"f16:n40h32c72k64r1+bias", "line64.pingpong"},
           {"f16:n3h33c40k200r1+bias", "line128.rows"},
           {"f16:n2h15c64k16r3stride2pad1+bias+relu6+max2", "8x8x1.rows"},
       }) {
    SCOPED_TRACE(std::string("repro: convoy explain ") + stage +
                 " --device cuda --kernel halo --tile " + tile +
                 " --trace trace.json --no-measure");
    const TracedStage told = traced(stage, tile);
    EXPECT_TRUE(told.same_bits);
    const Phases& phases = told.trace.measured;
    EXPECT_GT(phases.head, 0);
    EXPECT_GT(phases.loop, 0);
    EXPECT_GT(phases.tail, 0);
    EXPECT_LT(phases.seconds(), 1e-3);
    EXPECT_GT(told.trace.math, 0);
    EXPECT_LE(told.trace.math, 1 + 1e-9);
    ASSERT_TRUE(told.trace.predicted);
    EXPECT_LT(told.trace.resolution, 2e-6);
    double last = 0;
    int track = -1;
    for (const RunTrace::Span& span : told.trace.spans) {
      if (span.track != track) last = 0, track = span.track;
      EXPECT_GE(span.begin, last - 1e-12);
      EXPECT_GT(span.end, span.begin);
      last = span.end;
    }
  }
}

TEST_F(GpuTrace, NoTraceIsAClearError) {
  const auto refused = [](const char* stage, const char* kernel, const char* tile,
                          const char* says) {
    try {
      static_cast<void>(trace_stage(parse_stage(stage), options_for(gpu0, kernel, tile), 0));
      FAIL() << stage << ": expected an Error that says " << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused("f16:n2h8c64k64r3pad1+relu", "window", "", "takes no time stamps");
  refused("bf16:n2h8c64k64r3pad1+relu", "halo", "", "for f16 stages without a neuron");
  refused("f16:n2h8c64k64r3pad1+if(1)", "halo", "", "for f16 stages without a neuron");
  refused("f16:n2h32c64k64r3pad1+relu", "halo", "8x32x1.pingpong", "--tile ");
}

}  // namespace
}  // namespace convoy::cuda
