#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "convoy/error.hpp"

namespace convoy {
namespace {

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> serial{0};  // two threads may write the same path
  return fmt::format("{}.{}.{}.tmp", path, getpid(), serial++);
}

[[noreturn]] void throw_errno(const std::string& path, const char* doing) {
  throw Error(
      fmt::format("{}: {} failed: {}. Choose a folder that exists, is writable and has space.",
                  path, doing, std::strerror(errno)));
}

// Where the file is: a link stays, and what it points to is replaced. Renaming would also replace a
// device or a pipe.
std::string target_of(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return path;
  if (S_ISDIR(found.st_mode))
    throw Error(path + ": is a folder, expected a file to write. Add a name to it.");
  if (!S_ISREG(found.st_mode))
    throw Error(path + ": is a device or a pipe, expected a file to write. Name a new one.");
  std::error_code failure;
  const auto target = std::filesystem::canonical(path, failure);
  return failure ? path : target.string();
}

int create(const std::string& path, const std::string& temporary) {
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) throw_errno(path, "creating a file beside it");
  return file;
}

}  // namespace

void expect_writable(const std::string& path) {
  const std::string temporary = temporary_name(target_of(path));
  close(create(path, temporary));
  unlink(temporary.c_str());
}

void write_file_atomically(const std::string& path, std::string_view text) {
  const std::string target = target_of(path), temporary = temporary_name(target);
  const int file = create(path, temporary);
  const auto fail = [&](const char* doing) {
    const int reason = errno;
    unlink(temporary.c_str());
    errno = reason;
    throw_errno(path, doing);
  };
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = write(file, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      close(file);
      errno = reason;
      fail("writing");
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  const bool flushed = fsync(file) == 0;
  if (close(file) != 0 || !flushed) fail("flushing");
  if (std::rename(temporary.c_str(), target.c_str()) != 0) fail("renaming the new file");
}

}  // namespace convoy
