// The tuning cache: whatever is in the file, it is read or ignored with a warning, and what was
// read is written and read again unchanged.
#include "plan/tuning_cache.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plan/select.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string warning;
  const auto cache = convoy::TuningCache::parse(
      std::string_view(reinterpret_cast<const char*>(data), size), warning);
  if (!warning.empty() && cache.size() != 0) std::abort();
  if (!warning.empty()) return 0;
  const std::string text = cache.to_json();
  const auto again = convoy::TuningCache::parse(text, warning);
  if (!warning.empty() || again.size() != cache.size() || again.to_json() != text) std::abort();
  // What was read may only choose among what fits.
  convoy::Machine machine = convoy::cpu_machine(1);
  machine.name = "m";
  machine.cpu_model = "";
  static const convoy::Stage stage = convoy::parse_stage("n1h4c8k8r1");
  const convoy::Selection chosen = convoy::select(stage, machine, convoy::PlanOptions(), &cache);
  if (!chosen.verdict().fits() || !chosen.kernel().refusals(stage, machine).empty()) std::abort();
  const auto tiles = chosen.kernel().tiles(stage, machine);
  if (std::find(tiles.begin(), tiles.end(), chosen.tile.tile) == tiles.end()) std::abort();
  return 0;
}
