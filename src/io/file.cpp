#include "io/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "convoy/error.hpp"

namespace convoy::io {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string advice(int error) {
  if (error == ENOENT) return ". Check the path.";
  if (error == EACCES || error == EPERM) return ". Give this user the right to read it.";
  return ".";
}

}  // namespace

std::vector<unsigned char> read_file(const std::string& path, std::size_t limit) {
  const Descriptor file(path);
  if (file.get() < 0) {
    const int error = errno;
    throw Error(path + ": cannot be opened: " + std::strerror(error) + advice(error));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    throw Error(path + ": cannot be examined: " + std::strerror(errno) + ".");
  if (!S_ISREG(info.st_mode))
    throw Error(path + ": not a regular file" +
                (S_ISDIR(info.st_mode) ? " but a folder. Name a file in it." : "."));
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > limit)
    throw Error(path + ": " + std::to_string(size) + " bytes, expected at most " +
                std::to_string(limit) + ". Is it the right file?");
  std::vector<unsigned char> bytes(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(path + ": cannot be read: " + std::strerror(errno) + ".");
    if (got == 0) throw Error(path + ": became shorter while it was read. Read it again.");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace convoy::io
