// Writing a file whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace convoy {

/// Writes `text` under a temporary name beside `path`, flushes it to the disk and renames it: a
/// reader sees the old file or the new one, never half of one. A symbolic link stays. Throws Error
/// (no permission, no space, no such folder, a device or a pipe); then the old file is untouched
/// and nothing is left behind.
void write_file_atomically(const std::string& path, std::string_view text);

/// Throws Error where write_file_atomically would, but for want of space: to be called before long
/// work whose result goes there.
void expect_writable(const std::string& path);

}  // namespace convoy
