#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "convoy/error.hpp"

namespace convoy {

void write_file_atomically(const std::string& path, std::string_view text) {
  static std::atomic<unsigned> serial{0};  // two threads may write the same path
  const std::string temporary = fmt::format("{}.{}.{}.tmp", path, getpid(), serial++);
  const auto fail = [&](const char* doing) {
    const int reason = errno;
    unlink(temporary.c_str());
    throw Error(
        fmt::format("{}: {} failed: {}. Choose a folder that exists, is writable and has space.",
                    path, doing, std::strerror(reason)));
  };
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) fail("creating a file beside it");
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
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("renaming the new file");
}

}  // namespace convoy
