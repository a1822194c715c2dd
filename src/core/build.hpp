// Which build of the library this is: for records of measurements, and for what they are kept
// under.
#pragma once

#include <string>

namespace convoy {

struct Build {
  std::string commit;         // 12 digits; empty: the source was no clone
  bool dirty = false;         // with changes that were not committed
  std::string compiler;       // "gcc 12.2.0"
  std::string cuda_compiler;  // "nvcc 13.0.88"; empty: built without
  std::string flags;          // the compiler's, without warnings

  /// The commit and the compiler in a line: what a measured choice holds for.
  std::string text() const;
};
const Build& build();

}  // namespace convoy
