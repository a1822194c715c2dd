// The time for people and records.
#pragma once

#include <fmt/chrono.h>

#include <ctime>
#include <string>

namespace convoy {

/// "2026-11-24T08:30:00Z"
inline std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace convoy
