// The index of a folder of dumps: Error, or operators that are written and read again unchanged.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "inspect/dump_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  inspect::DumpIndex index;
  try {
    index = inspect::parse_index({reinterpret_cast<const char*>(data), size}, "dbg.json");
  } catch (const Error&) {
    return 0;
  }
  const std::string text = inspect::text_of(index);
  if (inspect::text_of(inspect::parse_index(text, "dbg.json")) != text) std::abort();
  for (const inspect::DumpedOperator& op : index.operators)
    if (op.full_shape().size() != 5 || op.values() < 1) std::abort();
  return 0;
}
