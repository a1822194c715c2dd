#include "core/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/printable.hpp"

namespace convoy {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

[[noreturn]] void refuse_to_read(const std::string& path, mode_t mode) {
  throw FileError(
      fmt::format("{}: is {}, expected a regular file. {}", printable_path(path), kind_of(mode),
                  S_ISDIR(mode) ? "Name a file in it." : "Copy its content to a file first."));
}

[[noreturn]] void cannot_open(const std::string& path, int error) {
  struct stat found {};
  if (error == ENXIO && stat(path.c_str(), &found) == 0) refuse_to_read(path, found.st_mode);
  std::string advice;
  if (error == ENOTDIR) {
    for (std::string part = path; !part.empty() && advice.empty();) {
      part.resize(part.rfind('/') == std::string::npos ? 0 : part.rfind('/'));
      if (stat(part.c_str(), &found) == 0 && !S_ISDIR(found.st_mode))
        advice = fmt::format(" {} is not a folder, expected one.", printable_path(part));
    }
  } else if (error == ENOENT) {
    const bool link = lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode);
    advice = link ? " It is a link whose target does not exist." : " Check the path.";
  } else if (error == EACCES || error == EPERM) {
    advice = " Give this user the permission to read it.";
  } else if (error == ELOOP) {
    advice = " It is a link that leads back to itself.";
  }
  throw Error(
      fmt::format("{}: cannot be opened: {}.{}", printable_path(path), std::strerror(error),
                  advice),
      error == ENOENT || error == ENOTDIR ? StatusCode::file_not_found : StatusCode::file_error);
}

[[noreturn]] void cannot_write(const std::string& path, const char* doing) {
  const int error = errno;
  throw FileError(
      fmt::format("{}: {} failed: {}. Choose a folder that exists, is writable and has space.",
                  printable_path(path), doing, std::strerror(error)));
}

// Where the file is: a link stays, and what it points to is replaced. Renaming would also replace a
// device or a pipe.
std::string target_of(const std::string& path) {
  struct stat found {};
  const bool there = stat(path.c_str(), &found) == 0;
  if (there && S_ISDIR(found.st_mode))
    throw FileError(printable_path(path) +
                    ": is a folder, expected a file to write. Add a name to it.");
  if (there && !S_ISREG(found.st_mode))
    throw FileError(fmt::format("{}: is {}, expected a file to write. Name a new one.",
                                printable_path(path), kind_of(found.st_mode)));
  std::string target = path;
  struct stat last {};
  constexpr int most_links = 40;  // as the kernel follows
  for (int links = 0; lstat(target.c_str(), &last) == 0 && S_ISLNK(last.st_mode); ++links) {
    std::error_code failure;
    const std::filesystem::path link = std::filesystem::read_symlink(target, failure);
    if (links == most_links || failure) {
      errno = failure ? failure.value() : ELOOP;
      cannot_write(path, "following the link");
    }
    target = (std::filesystem::path(target).parent_path() / link).string();
  }
  // /proc/self/fd/3 may lead to a file that has no name any more.
  if (there && (lstat(target.c_str(), &last) != 0 || last.st_ino != found.st_ino ||
                last.st_dev != found.st_dev))
    throw FileError(
        printable_path(path) +
        ": is an open file without a name, expected the name of a file to write. Name one.");
  return target;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);  // npos + 1 is 0: none
}

// The temporary file that is not renamed yet, for remove_temporary_file(), which may not touch the
// heap. One is enough: the program writes one file at a time.
char pending[PATH_MAX];
std::atomic<bool> pending_taken{false}, pending_there{false};

/// A file beside the target that is gone at the end, unless it has become the target.
class Temporary {
 public:
  explicit Temporary(const std::string& path)
      : path_(path), target_(target_of(path)), file_(create()) {
    struct stat old {};
    if (stat(target_.c_str(), &old) == 0) become_like(old);
  }
  ~Temporary() {
    if (!renamed_) unlink(name_.c_str());
    forget();
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(file_.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) cannot_write(path_, "writing");
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    if (fsync(file_.get()) != 0 || !file_.close()) cannot_write(path_, "flushing");
  }
  void replace_target() {
    if (std::rename(name_.c_str(), target_.c_str()) != 0)
      cannot_write(path_, "renaming the new file");
    renamed_ = true;
  }

 private:
  // A name that nobody can foresee, made anew: what somebody has put there is neither followed nor
  // overwritten. It holds none of the target's, which may be as long as names may be.
  int create() {
    constexpr int attempts = 100;
    for (int i = 0; i < attempts; ++i) {
      std::uint64_t random = 0;
      if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = static_cast<std::uint64_t>(getpid()) * attempts + static_cast<std::uint64_t>(i);
      name_ = fmt::format("{}.convoy-{:016x}.tmp", folder_of(target_), random);
      announce();
      struct stat old {};
      // A secret is never open to more people than it was, not even for a moment.
      const mode_t mode = stat(target_.c_str(), &old) == 0 ? 0600 : 0644;
      const int file =
          open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
      if (file >= 0) return file;
      const int error = errno;
      forget();
      errno = error;
      if (error != EEXIST) break;
    }
    cannot_write(path_, "creating a file beside it");
  }

  void become_like(const struct stat& old) const {
    struct stat mine {};
    if (fstat(file_.get(), &mine) != 0) return;
    bool group = mine.st_gid == old.st_gid;
    if (mine.st_uid != old.st_uid || !group)
      group = fchown(file_.get(), old.st_uid, old.st_gid) == 0 ||
              fchown(file_.get(), static_cast<uid_t>(-1), old.st_gid) == 0;
    mode_t mode = old.st_mode & 0777;
    // Another group gets what everybody gets.
    if (!group) mode = (mode & 0707) | (mode & 0007 & mode >> 3) << 3;
    fchmod(file_.get(), mode);  // where the file system knows no modes, 600 has to do
  }

  void announce() {
    announced_ = name_.size() < sizeof pending && !pending_taken.exchange(true);
    if (!announced_) return;
    std::memcpy(pending, name_.c_str(), name_.size() + 1);
    pending_there = true;
  }
  void forget() {
    if (!announced_) return;
    announced_ = pending_there = false;
    pending_taken = false;
  }

  const std::string& path_;
  std::string target_, name_;
  bool announced_ = false, renamed_ = false;
  Descriptor file_;
};

}  // namespace

Descriptor::~Descriptor() {
  close();
}

bool Descriptor::close() {
  if (fd_ < 0) return true;
  const int fd = fd_;
  fd_ = -1;
  return ::close(fd) == 0;
}

// O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
InputFile::InputFile(const std::string& path, std::size_t limit)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (file_.get() < 0) cannot_open(path, errno);
  struct stat info {};
  if (fstat(file_.get(), &info) != 0)
    throw wrong(fmt::format("cannot be examined: {}.", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) refuse_to_read(path, info.st_mode);
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ > limit)
    throw InvalidFile(
        fmt::format("{}: {} bytes, expected at most {}. Check that it is the right file.",
                    printable_path(path_), size_, limit));
}

Error InputFile::wrong(const std::string& what) const {
  return FileError(fmt::format("{}: {}", printable_path(path_), what));
}

void InputFile::read(std::size_t at, std::span<unsigned char> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(file_.get(), to.data(), to.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw wrong(fmt::format("cannot be read: {}.", std::strerror(errno)));
    if (got == 0)
      throw wrong("it became shorter while it was read, expected no change. Read it again.");
    to = to.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::size_t>(got);
  }
}

std::vector<unsigned char> read_file(const std::string& path, std::size_t limit) {
  const InputFile file(path, limit);
  std::vector<unsigned char> bytes(file.size());
  file.read(0, bytes);
  return bytes;
}

bool file_there(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

void expect_writable(const std::string& path) {
  const Temporary temporary(path);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  Temporary temporary(path);
  temporary.write(text);
  temporary.replace_target();
}

bool same_target(const std::string& a, const std::string& b) {
  const std::string target_a = target_of(a), target_b = target_of(b);
  const std::string folder_a = folder_of(target_a), folder_b = folder_of(target_b);
  if (target_a.substr(folder_a.size()) != target_b.substr(folder_b.size())) return false;
  struct stat info_a {
  }, info_b{};
  return stat(folder_a.empty() ? "." : folder_a.c_str(), &info_a) == 0 &&
         stat(folder_b.empty() ? "." : folder_b.c_str(), &info_b) == 0 &&
         info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
}

void remove_temporary_file() noexcept {
  if (pending_there) unlink(pending);
}

}  // namespace convoy
