// The tuning cache: whatever is in the file, it is read or ignored with a warning, and what was
// read is written and read again unchanged.
#include "plan/tuning_cache.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string warning;
  const auto cache = convoy::TuningCache::parse(
      std::string_view(reinterpret_cast<const char*>(data), size), warning);
  if (!warning.empty() && cache.size() != 0) std::abort();
  if (!warning.empty()) return 0;
  const std::string text = cache.to_json();
  const auto again = convoy::TuningCache::parse(text, warning);
  if (!warning.empty() || again.size() != cache.size() || again.to_json() != text) std::abort();
  return 0;
}
