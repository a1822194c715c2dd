// The one door to files: reading them whole, and writing them whole or not at all.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/error.hpp"

namespace convoy {

/// A file descriptor, closed at the end; negative: none.
class Descriptor {
 public:
  explicit Descriptor(int opened = -1) : fd_(opened) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  /// Closes it now; false where that fails, as it may for what was written.
  bool close();

 private:
  int fd_;
};

/// A regular file, opened for reading parts of it. No memory map: of a file that becomes shorter
/// `read` throws, where touching a map would end the process.
class InputFile {
 public:
  static constexpr std::size_t most_bytes = std::size_t{4} << 30;

  /// Throws Error, naming the cause, when it is missing, a folder, a pipe, a device or another
  /// thing that is no file, unreadable or larger than `limit` bytes. Waits for nobody.
  explicit InputFile(const std::string& path, std::size_t limit = most_bytes);
  std::size_t size() const { return size_; }
  /// Fills `to` from byte `at` on. Throws Error where that can't be read any more.
  void read(std::size_t at, std::span<unsigned char> to) const;

 private:
  [[nodiscard]] Error wrong(const std::string& what) const;

  std::string path_;
  Descriptor file_;
  std::size_t size_ = 0;
};

/// All bytes of such a file. Allocates nothing before it is checked.
std::vector<unsigned char> read_file(const std::string& path,
                                     std::size_t limit = InputFile::most_bytes);

inline std::string_view text_of(std::span<const unsigned char> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Whether anything has this path, be it a file, a folder, a pipe or a link to nowhere. True too
/// where that can't be found out: read_file then says why.
bool file_there(const std::string& path);

/// Writes `text` under a temporary name in the folder of `path`, flushes it to the disk and renames
/// it: a reader sees the old file or the new one, never half of one. A file that was there keeps
/// its mode, and its owner where this user may give files away; a symbolic link stays, and what it
/// points to is written, be it there or not. Throws Error (no permission, no space, no such folder,
/// a device or a pipe); then the old file is untouched and nothing is left behind.
void write_file_atomically(const std::string& path, std::string_view text);

/// Throws Error where write_file_atomically would, but for want of space: to be called before long
/// work whose result goes there.
void expect_writable(const std::string& path);

/// Whether both paths, links followed, are the same name in the same folder, so that writing one
/// would replace the other.
bool same_target(const std::string& a, const std::string& b);

/// Removes the temporary file of a write that is under way. May be called by a signal handler that
/// ends the program: nothing else would remove it then.
void remove_temporary_file() noexcept;

}  // namespace convoy
