#include "core/trace.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "convoy/error.hpp"

namespace convoy {
namespace {

double seconds_between(TaskLog::Clock::time_point a, TaskLog::Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

// The least difference of two readings: what the clock can tell apart, and how long it takes.
double resolution_of_clock() {
  double least = 1;
  for (int i = 0; i < 100; ++i) {
    const auto first = TaskLog::Clock::now();
    auto next = first;
    while (next == first) next = TaskLog::Clock::now();
    least = std::min(least, seconds_between(first, next));
  }
  return least;
}

}  // namespace

TaskLog::TaskLog(int slots, std::size_t most) : of_(static_cast<std::size_t>(slots)), most_(most) {}

void TaskLog::add(int slot, Index task, Clock::time_point begin, Clock::time_point end) noexcept {
  Slot& mine = of_[static_cast<std::size_t>(slot)];
  if (mine.tasks.size() >= most_) {
    ++mine.left_out;
    return;
  }
  try {
    mine.tasks.push_back({loops_ - 1, task, begin, end});
  } catch (const std::bad_alloc&) {
    ++mine.left_out;
  }
}

std::size_t TaskLog::left_out() const {
  std::size_t all = 0;
  for (const Slot& slot : of_) all += slot.left_out;
  return all;
}

RunTrace trace_of(const TaskLog& log, TaskLog::Clock::time_point begin,
                  TaskLog::Clock::time_point end) {
  RunTrace trace;
  trace.clock = "the system's steady clock";
  trace.resolution = resolution_of_clock();
  double first = seconds_between(begin, end), last = 0, busy = 0;
  for (int slot = 0; slot < log.slots(); ++slot) {
    trace.tracks.push_back({0, "threads", fmt::format("thread {}", slot)});
    for (const TaskLog::Task& task : log.of(slot)) {
      const double from = seconds_between(begin, task.begin), to = seconds_between(begin, task.end);
      trace.spans.push_back({slot, "task", from, to, task.loop, task.task});
      first = std::min(first, from);
      last = std::max(last, to);
      busy += to - from;
    }
  }
  last = std::max(first, last);  // without a task all is head
  trace.measured = {first, last - first, seconds_between(begin, end) - last};
  if (last > first) trace.math = busy / (last - first) / log.slots();
  return trace;
}

}  // namespace convoy
