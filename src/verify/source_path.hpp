// Where the program and the tests find files of the source tree.
#pragma once

#include <string>

namespace convoy {

/// The path of a file or folder of the tree that this was built from; `relative`: from its root.
std::string source_path(const std::string& relative);

}  // namespace convoy
