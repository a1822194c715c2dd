// Stage text: whatever is typed either throws Error or gives a legal stage whose text gives it
// back.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const convoy::Stage stage = convoy::parse_stage(text);
    static_cast<void>(convoy::shapes_of(stage));  // throws for what is not legal
    const std::string canonical = convoy::to_text(stage);
    const convoy::Stage again = convoy::parse_stage(canonical);
    if (again != stage || convoy::to_text(again) != canonical ||
        convoy::hash_of(again) != convoy::hash_of(stage))
      std::abort();
  } catch (const convoy::Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}
