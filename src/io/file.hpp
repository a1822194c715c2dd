// Reading whole files, with errors that say what to do.
#pragma once

#include <string>
#include <vector>

namespace convoy::io {

/// The bytes of a regular file. Throws Error, naming the cause, when it is missing, not a regular
/// file, unreadable or larger than `limit` bytes; nothing is allocated before these checks.
std::vector<unsigned char> read_file(const std::string& path,
                                     std::size_t limit = std::size_t{4} << 30);

bool file_exists(const std::string& path);

}  // namespace convoy::io
