// Traces as Chrome's trace event format: what a reader of the JSON finds in it.
#include "inspect/chrome_trace.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "convoy/error.hpp"

namespace convoy::inspect {
namespace {

nlohmann::json parsed(const ChromeTrace& trace) {
  return nlohmann::json::parse(trace.text());
}

TEST(ChromeTrace, HoldsNamesSpansAndCounts) {
  ChromeTrace trace;
  trace.tell("machine", "a \"quoted\" one");
  trace.tell("clock_hz", 2e9);
  trace.name_group(3, "SM 3");
  trace.name_track({3, 1}, "consumer 1\n\x01\xff");
  trace.add({3, 1}, "math", 1e-6, 3.5e-6, {{"tile", 7.0}, {"slot", "x"}});
  trace.count(3, "slots", 2e-6, 4);
  const nlohmann::json json = parsed(trace);
  EXPECT_EQ(json["displayTimeUnit"], "ns");
  EXPECT_EQ(json["otherData"]["machine"], "a \"quoted\" one");
  EXPECT_EQ(json["otherData"]["clock_hz"], 2e9);
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["pid"], 3);
  EXPECT_EQ(events[0]["args"]["name"], "SM 3");
  EXPECT_EQ(events[1]["args"]["sort_index"], 3);
  EXPECT_EQ(events[2]["name"], "thread_name");
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_EQ(events[2]["args"]["name"], "consumer 1\n\x01\uFFFD");
  EXPECT_EQ(events[4], (nlohmann::json{{"ph", "X"},
                                       {"pid", 3},
                                       {"tid", 1},
                                       {"name", "math"},
                                       {"ts", 1.0},
                                       {"dur", 2.5},
                                       {"args", {{"tile", 7.0}, {"slot", "x"}}}}));
  EXPECT_EQ(events[5]["ph"], "C");
  EXPECT_EQ(events[5]["args"]["value"], 4);
  EXPECT_EQ(trace.spans(), 1U);
}

TEST(ChromeTrace, EmptyIsStillAFile) {
  EXPECT_TRUE(parsed(ChromeTrace())["traceEvents"].empty());
}

// Perfetto reads microseconds and keeps nanoseconds: spans that touch must not overlap by one, or
// it moves one of them.
TEST(ChromeTrace, SpansThatTouchTouchInTheFile) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("repro: seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> length(0, 3e-9);
  ChromeTrace trace;
  double at = 1e-3;
  for (int i = 0; i < 1000; ++i) {
    const double end = at + length(random);
    trace.add({}, "span", at, end);
    at = end;
  }
  const nlohmann::json json = parsed(trace);
  ASSERT_EQ(json["traceEvents"].size(), 1000U);
  double last = 1e3;
  for (const auto& event : json["traceEvents"]) {
    const double begin = event["ts"].get<double>(), dur = event["dur"].get<double>();
    EXPECT_NEAR(begin, last, 1e-7);
    EXPECT_GE(dur, 0);
    last = begin + dur;
  }
  EXPECT_NEAR(last, at * 1e6, 1e-3);
}

TEST(ChromeTrace, RefusesTimesThatAreNone) {
  ChromeTrace trace;
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const auto& [begin, end] :
       {std::pair(2.0, 1.0), {-1.0, 1.0}, {nan, 1.0}, {0.0, nan}, {0.0, infinity}})
    EXPECT_THROW(trace.add({}, "wrong", begin, end), Error) << begin << " " << end;
  EXPECT_THROW(trace.count(0, "wrong", nan, 1), Error);
  trace.count(0, "value", 1, nan);  // JSON has no NaN: null
  EXPECT_TRUE(parsed(trace)["traceEvents"][0]["args"]["value"].is_null());
  EXPECT_EQ(trace.spans(), 0U);
}

}  // namespace
}  // namespace convoy::inspect
