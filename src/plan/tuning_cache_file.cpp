// The file of a user's tuning cache: where it is, how it is read once for many plans, and written
// beside other processes.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"
#include "core/process.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {
namespace {

constexpr std::size_t most_bytes = 64 << 20;  // a row takes about 200

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw FileError(
      fmt::format("tuning cache {}: {}. Set CONVOY_CACHE to a folder that you may write to.",
                  printable_path(path), what));
}

// Two processes that tune at once: the second reads what the first wrote before it adds its own.
// Somebody may hold the lock who never lets go (a stopped process), so that nobody waits for ever.
class Lock {
 public:
  Lock(const std::string& path, double wait)
      : name_(path + ".lock"),
        file_(::open(name_.c_str(),
                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644)) {
    if (file_.get() < 0 && errno != ELOOP)
      fail(path, fmt::format("its lock file can't be opened: {}", std::strerror(errno)));
    struct stat info {};
    if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode))
      fail(path, fmt::format("{} is not a regular file. Remove it", printable_path(name_)));
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(wait);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        fail(path, fmt::format("it can't be locked: {}", std::strerror(errno)));
      if (Clock::now() > until)
        throw FileError(fmt::format(
            "tuning cache {0}: another process has held {1} for {2} seconds, and nothing was "
            "saved. Is a `convoy tune` stopped or stuck? `fuser {1}` names it: end it and try "
            "again.",
            printable_path(path), printable_path(name_), wait));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

 private:
  std::string name_;
  Descriptor file_;
};

}  // namespace

std::string tuning_cache_path() {
  const auto folder = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string own = folder("CONVOY_CACHE"); !own.empty()) return own + "/tuning.json";
  if (const std::string xdg = folder("XDG_CACHE_HOME"); !xdg.empty())
    return xdg + "/convoy/tuning.json";
  if (const std::string home = folder("HOME"); !home.empty())
    return home + "/.cache/convoy/tuning.json";
  return {};
}

TuningCache load_tuning_cache(const std::string& path, std::string& warning) {
  if (path.empty()) return {};
  // No file, or no folder, is how everybody starts.
  if (!file_there(path)) return {};
  std::string why;
  try {
    const auto bytes = read_file(path, most_bytes);
    TuningCache cache = TuningCache::parse(text_of(bytes), why);
    if (!why.empty()) warning = fmt::format("{}: {}", printable_path(path), why);
    return cache;
  } catch (const Error& error) {
    warning = fmt::format("the tuning cache is ignored: {}", error.what());
    return {};
  }
}

std::shared_ptr<const TuningCache> user_tuning_cache(std::string& warning) {
  struct Known {
    std::string path, warning;
    std::array<std::int64_t, 4> facts{-1, -1, -1, -1};
    std::shared_ptr<const TuningCache> cache;
  };
  static constinit Shared<Known> shared;
  const std::string path = tuning_cache_path();
  std::array<std::int64_t, 4> facts{};
  struct stat status {};
  if (!path.empty() && ::stat(path.c_str(), &status) == 0)
    facts = {static_cast<std::int64_t>(status.st_ino), status.st_size, status.st_mtim.tv_sec,
             status.st_mtim.tv_nsec};
  const auto locked = shared.lock();
  Known& known = *locked;
  if (!known.cache || known.path != path || known.facts != facts) {
    known.warning.clear();
    TuningCache all = shipped_tuning();
    all.merge(load_tuning_cache(path, known.warning));
    known.cache = std::make_shared<const TuningCache>(std::move(all));
    known.path = path;
    known.facts = facts;
  }
  warning = known.warning;
  return known.cache;
}

void save_tuning_cache(const std::string& path, const TuningCache& rows, double wait) {
  if (path.empty())
    throw FileError(
        "tuning cache: none of CONVOY_CACHE, XDG_CACHE_HOME and HOME is set. Set "
        "CONVOY_CACHE to a folder that you may write to.");
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failure);
  if (failure) fail(path, fmt::format("its folder can't be made: {}", failure.message()));
  const Lock lock(path, wait);
  std::string ignored;
  TuningCache merged = load_tuning_cache(path, ignored);
  merged.merge(rows);
  try {
    write_file_atomically(path, merged.to_json());
  } catch (const Error& error) {
    throw Error(fmt::format("tuning cache {} Or set CONVOY_CACHE to another.", error.what()),
                error.code());
  }
}

}  // namespace convoy
