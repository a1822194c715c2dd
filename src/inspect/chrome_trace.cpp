#include "inspect/chrome_trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"

namespace convoy::inspect {
namespace {

// A trace may have a million events: they are written as they come, and only texts pass through
// the JSON library.
std::string quoted(std::string_view text) {
  return json_text(nlohmann::json(text));
}

std::string json_of(const std::variant<double, std::string_view>& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) return quoted(*text);
  return json_text(nlohmann::json(std::get<double>(value)));  // null where it is not finite
}

std::string microseconds(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e6);
}

void check_time(std::string_view name, double begin, double end) {
  if (std::isfinite(begin) && std::isfinite(end) && begin >= 0 && end >= begin) return;
  throw Error(
      fmt::format("trace: \"{}\" lasts from {} to {} s, expected times of 0 or more, and an end "
                  "not before the begin.",
                  printable(name), begin, end));
}

}  // namespace

void ChromeTrace::begin_event() {
  events_ += events_.empty() ? "\n" : ",\n";
}

void ChromeTrace::name_group(int group, std::string_view name) {
  for (const auto& [what, argument] :
       {std::pair("process_name", fmt::format(R"("name":{})", quoted(name))),
        std::pair("process_sort_index", fmt::format(R"("sort_index":{})", group))}) {
    begin_event();
    fmt::format_to(std::back_inserter(events_),
                   R"({{"ph":"M","pid":{},"name":"{}","args":{{{}}}}})", group, what, argument);
  }
}

void ChromeTrace::name_track(Track track, std::string_view name) {
  for (const auto& [what, argument] :
       {std::pair("thread_name", fmt::format(R"("name":{})", quoted(name))),
        std::pair("thread_sort_index", fmt::format(R"("sort_index":{})", track.track))}) {
    begin_event();
    fmt::format_to(std::back_inserter(events_),
                   R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", track.group,
                   track.track, what, argument);
  }
}

void ChromeTrace::add(Track track, std::string_view name, double begin, double end,
                      const TraceFacts& facts) {
  check_time(name, begin, end);
  begin_event();
  // The end is rounded, not the length: spans that touch then touch in the file.
  const double length = std::round(end * 1e9) - std::round(begin * 1e9);
  fmt::format_to(std::back_inserter(events_),
                 R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{},"dur":{})", track.group,
                 track.track, quoted(name), microseconds(begin), microseconds(length * 1e-9));
  if (!facts.empty()) {
    events_ += R"(,"args":{)";
    std::string_view comma;
    for (const auto& [fact, value] : facts) {
      fmt::format_to(std::back_inserter(events_), "{}{}:{}", comma, quoted(fact), json_of(value));
      comma = ",";
    }
    events_ += '}';
  }
  events_ += '}';
  ++spans_;
}

void ChromeTrace::count(int group, std::string_view name, double at, double value) {
  check_time(name, at, at);
  begin_event();
  fmt::format_to(std::back_inserter(events_),
                 R"({{"ph":"C","pid":{},"name":{},"ts":{},"args":{{"value":{}}}}})", group,
                 quoted(name), microseconds(at), json_of(value));
}

void ChromeTrace::tell(std::string_view name, std::variant<double, std::string_view> value) {
  fmt::format_to(std::back_inserter(about_), "{}{}:{}", about_.empty() ? "" : ",", quoted(name),
                 json_of(value));
}

std::string ChromeTrace::text() const {
  return fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{{}}},\"traceEvents\":[{}\n]}}\n",
                     about_, events_);
}

}  // namespace convoy::inspect
