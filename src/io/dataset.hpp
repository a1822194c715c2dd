// Where images are looked for when no file is named.
#pragma once

#include <string>

namespace convoy::io {

/// The path of `file` or `file`.gz ("t10k-images-idx3-ubyte") in the first of these folders that
/// has it: `folder` (the option; skipped when empty), $CONVOY_DATA, $XDG_DATA_HOME/convoy (default
/// ~/.local/share/convoy), /usr/share/datasets/fashion-mnist. A folder named by option is the only
/// one that is looked into. Throws Error that names all of them.
std::string find_data(const std::string& file, const std::string& folder);

}  // namespace convoy::io
