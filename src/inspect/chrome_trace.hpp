// Time lines as a file that chrome://tracing and Perfetto (https://ui.perfetto.dev) open: the JSON
// of Chrome's trace event format ("Trace Event Format", its object form).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace convoy::inspect {

/// Named facts of a span or of the whole trace, shown where it is selected.
using TraceFacts = std::vector<std::pair<std::string_view, std::variant<double, std::string_view>>>;

/// Collects tracks and spans; `text` is the file. Tracks lie in groups (the format's threads and
/// processes), both numbered from 0 and shown in this order. Names may hold anything.
class ChromeTrace {
 public:
  /// A track's place: a span without a name for its group or track is shown with the numbers.
  struct Track {
    int group = 0, track = 0;
  };

  void name_group(int group, std::string_view name);
  void name_track(Track track, std::string_view name);

  /// Something that took from `begin` to `end`, in seconds from any one moment. The format shows
  /// spans of one track inside each other: they may nest, but not overlap in part. Throws Error
  /// where a time is not finite, negative, or the end comes before the begin.
  void add(Track track, std::string_view name, double begin, double end,
           const TraceFacts& facts = {});
  /// A value that changes over time, drawn as a graph of the group. Throws as `add` does.
  void count(int group, std::string_view name, double at, double value);
  /// Of the whole trace: what it shows, on which machine.
  void tell(std::string_view name, std::variant<double, std::string_view> value);

  std::size_t spans() const { return spans_; }
  /// The whole file. Times are microseconds with the nanoseconds behind the point, as the format
  /// has them.
  std::string text() const;

 private:
  void begin_event();

  std::string events_, about_;
  std::size_t spans_ = 0;
};

}  // namespace convoy::inspect
