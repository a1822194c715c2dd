// Writing a file whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace convoy {

/// Writes `text` under a temporary name beside `path`, flushes it to the disk and renames it: a
/// reader sees the old file or the new one, never half of one. Throws Error (no permission, no
/// space, no such folder); then the old file is untouched and nothing is left behind.
void write_file_atomically(const std::string& path, std::string_view text);

/// Throws Error where write_file_atomically would for want of a folder or of permission, and where
/// `path` is a folder: to be called before long work whose result goes there.
void expect_writable(const std::string& path);

}  // namespace convoy
