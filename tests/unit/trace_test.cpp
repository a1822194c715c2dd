// Traced runs on the CPU: every task once, in order, and the same bits.
#include "core/trace.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "convoy/error.hpp"
#include "core/threads.hpp"
#include "plan/trace.hpp"

namespace convoy {
namespace {

TEST(TaskLog, HasEveryTaskOnce) {
  for (const int count : {1, 2, 3}) {
    Threads threads(count);
    TaskLog log(count);
    std::atomic<Index> run = 0;
    const auto loop = [&](Index tasks) { threads.for_each(tasks, [&](Index, int) { ++run; }); };
    loop(5);  // before there is a log
    threads.log_to(&log);
    loop(1);
    loop(0);
    loop(100);
    threads.log_to(nullptr);
    loop(7);
    EXPECT_EQ(run, 5 + 101 + 7);
    EXPECT_EQ(log.loops(), 3);
    std::vector<int> seen(101, 0);
    for (int slot = 0; slot < log.slots(); ++slot) {
      TaskLog::Clock::time_point last{};
      for (const TaskLog::Task& task : log.of(slot)) {
        ++seen[static_cast<std::size_t>(task.loop == 0 ? 100 : task.task)];
        EXPECT_GE(task.begin, last) << "tasks of a slot overlap";
        EXPECT_GE(task.end, task.begin);
        last = task.end;
      }
    }
    EXPECT_EQ(seen, std::vector<int>(101, 1)) << count << " threads";
    EXPECT_EQ(log.left_out(), 0U);
  }
}

TEST(TaskLog, CountsWhatItHasNoRoomFor) {
  Threads threads(1);
  TaskLog log(1, 10);
  threads.log_to(&log);
  threads.for_each(25, [](Index, int) {});
  EXPECT_EQ(log.of(0).size(), 10U);
  EXPECT_EQ(log.left_out(), 15U);
  TaskLog another(2);
  EXPECT_THROW(threads.log_to(&another), Error);
}

TEST(TaskLog, PhasesAddUpToTheRun) {
  using namespace std::chrono_literals;
  const TaskLog::Clock::time_point start{};
  TaskLog log(2);
  log.begin_loop();
  log.add(0, 0, start + 2us, start + 5us);
  log.add(1, 1, start + 3us, start + 9us);
  const RunTrace trace = trace_of(log, start, start + 10us);
  EXPECT_DOUBLE_EQ(trace.measured.head, 2e-6);
  EXPECT_DOUBLE_EQ(trace.measured.loop, 7e-6);
  EXPECT_NEAR(trace.measured.tail, 1e-6, 1e-15);
  EXPECT_NEAR(trace.math, 9.0 / 14, 1e-12);  // 3 and 6 of 7, on two threads
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[1].track, 1);
  EXPECT_GT(trace.resolution, 0);

  const RunTrace none = trace_of(TaskLog(1), start, start + 10us);
  EXPECT_DOUBLE_EQ(none.measured.head, 1e-5);
  EXPECT_EQ(none.measured.loop + none.measured.tail + none.math, 0);
}

// The traced run is the plan's own run: other threads, other bits or an output that was not written
// would show.
TEST(TraceStage, GivesTheSameBits) {
  for (const char* text :
       {"n2h15w13c16k24r3pad1+bias+relu+max2", "n1h9c3k8r5stride2pad2+bias+leaky(0.1)",
        "n2h8c16k16r3pad1groups16+relu6", "n3h6c8k8r3pad1+bias+lif(2,0.5)+t3+max2",
        "n2h7c8k8r1+keep(pre)"}) {
    for (const int count : {1, 2}) {
      PlanOptions options;
      options.threads = count;
      options.all_threads = true;
      const TracedStage traced = trace_stage(parse_stage(text), options, 0);
      EXPECT_TRUE(traced.same_bits) << text;
      EXPECT_FALSE(traced.trace.spans.empty()) << text;
      EXPECT_EQ(traced.trace.tracks.size(), static_cast<std::size_t>(count)) << text;
      EXPECT_GT(traced.trace.measured.loop, 0) << text;
      EXPECT_EQ(traced.left_out, 0U);
      EXPECT_EQ(traced.seconds, 0);
    }
  }
}

}  // namespace
}  // namespace convoy
