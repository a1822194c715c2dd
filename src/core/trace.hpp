// What a run did when: spans on tracks, by time stamps that are taken inside it. A run that is not
// traced takes none.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy {

/// Seconds of a run before its first math, from there to the end of its last, and behind that.
struct Phases {
  double head = 0, loop = 0, tail = 0;
  double seconds() const { return head + loop + tail; }
};

/// One run. Times are in seconds from its beginning.
struct RunTrace {
  /// What did things one after the other: a warpgroup of a CTA, a thread.
  struct Track {
    int group = 0;       // tracks of one group belong together: those of a multiprocessor
    std::string in, is;  // names of the group and of the track
  };
  struct Span {
    int track = 0;
    const char* what = "";  // "wait", "math": a literal
    double begin = 0, end = 0;
    Index tile = -1, part = -1;  // of the run, of the tile; -1: of none
  };

  std::vector<Track> tracks;
  std::vector<Span> spans;  // those of a track in order, none overlapping
  std::string clock;        // what told the time
  double resolution = 0;    // seconds: spans of different tracks are placed so closely
  double hertz = 0;         // of a GPU's clock in the meantime
  // Of all the untraced runs just before, on a GPU.
  double before_seconds = 0, before_hertz = 0;

  /// Of what ended last: a GPU's CTA. The three add up to the whole run.
  Phases measured;
  std::optional<Phases> predicted;  // by the cost model
  double overlap = 0;               // seconds of the head that lie beside the end of the run before
  double math = 0;  // the mean share of the loop in which a CTA or thread has math under way
};

/// The tasks of a run on the CPU as they were run. Tasks of one slot may log at the same time as
/// those of others, but not as each other.
class TaskLog {
 public:
  using Clock = std::chrono::steady_clock;
  struct Task {
    Index loop = 0, task = 0;  // loops count the calls of for_each
    Clock::time_point begin, end;
  };

  /// Throws Error where memory runs out. Tasks beyond `most` of a slot are counted, not kept.
  explicit TaskLog(int slots, std::size_t most = std::size_t{1} << 20);
  /// Before the tasks of the next loop.
  void begin_loop() { ++loops_; }
  void add(int slot, Index task, Clock::time_point begin, Clock::time_point end) noexcept;

  int slots() const { return static_cast<int>(of_.size()); }
  Index loops() const { return loops_; }
  const std::vector<Task>& of(int slot) const { return of_[static_cast<std::size_t>(slot)].tasks; }
  std::size_t left_out() const;

 private:
  struct alignas(64) Slot {  // no two share a cache line
    std::vector<Task> tasks;
    std::size_t left_out = 0;
  };
  std::vector<Slot> of_;
  std::size_t most_;
  Index loops_ = 0;
};

/// Of a run from `begin` to `end` whose tasks were logged.
RunTrace trace_of(const TaskLog& log, TaskLog::Clock::time_point begin,
                  TaskLog::Clock::time_point end);

}  // namespace convoy
