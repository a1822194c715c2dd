#include "verify/source_path.hpp"

namespace convoy {

// The one file that is told the tree's place: the compiler cache of another clone has all others.
std::string source_path(const std::string& relative) {
  return CONVOY_SOURCE_DIR "/" + relative;
}

}  // namespace convoy
