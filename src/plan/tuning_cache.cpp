#include "plan/tuning_cache.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "core/process.hpp"

namespace convoy {
namespace {

constexpr int format_version = 1;
constexpr std::size_t most_bytes = 64 << 20;  // a row takes about 200
constexpr std::size_t longest_text = 2000;    // longer than any stage's canonical text

// The parts are joined by a character that is in none of them.
std::string key(std::string_view machine, std::string_view isa, Index threads,
                std::string_view stage) {
  return fmt::format("{}\n{}\n{}\n{}", machine, isa, threads, stage);
}

std::array<std::string, 4> parts_of(const std::string& key) {
  std::array<std::string, 4> parts;
  std::size_t begin = 0;
  for (std::string& part : parts) {
    const std::size_t end = std::min(key.find('\n', begin), key.size());
    part = key.substr(begin, end - begin);
    begin = std::min(end + 1, key.size());
  }
  return parts;
}

// A text field of a row; null when it is not there, empty, too long or has a control character.
const std::string* text_field(const nlohmann::json& row, const char* name) {
  const auto at = row.find(name);
  if (at == row.end() || !at->is_string()) return nullptr;
  const auto& text = at->get_ref<const std::string&>();
  if (text.empty() || text.size() > longest_text) return nullptr;
  for (const char letter : text)
    if (static_cast<unsigned char>(letter) < 32) return nullptr;
  return &text;
}

struct File {
  int descriptor = -1;
  explicit File(int opened) : descriptor(opened) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw Error(
      fmt::format("tuning cache {}: can't {}: {}. Set CONVOY_CACHE to a folder that you may "
                  "write to.",
                  path, what, std::strerror(errno)));
}

void write_all(const std::string& path, int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path, "write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(descriptor) != 0) fail(path, "flush to disk");
}

}  // namespace

const TunedTile* TuningCache::find(const Machine& machine, const Stage& stage) const {
  if (rows_.empty()) return nullptr;
  auto row = rows_.find(key(machine.name, machine.isa, machine.threads, to_text(stage)));
  if (row == rows_.end() && stage.dtype == DType::bf16) {
    Stage twin = stage;
    twin.dtype = DType::f16;
    row = rows_.find(key(machine.name, machine.isa, machine.threads, to_text(twin)));
  }
  return row == rows_.end() ? nullptr : &row->second;
}

void TuningCache::set(const Machine& machine, const Stage& stage, TunedTile row) {
  rows_[key(machine.name, machine.isa, machine.threads, to_text(stage))] = std::move(row);
}

void TuningCache::merge(const TuningCache& other) {
  for (const auto& [k, row] : other.rows_) rows_[k] = row;
}

TuningCache TuningCache::parse(std::string_view text, std::string& warning) {
  TuningCache cache;
  const auto ignore = [&](const std::string& why) {
    warning = fmt::format("the tuning cache is ignored: {}. `convoy tune` writes a new one.", why);
    return TuningCache{};
  };
  const auto file = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (file.is_discarded() || !file.is_object())
    return ignore("it is not a JSON object (was it cut short?)");
  const auto format = file.find("format");
  if (format == file.end() || !format->is_number_integer() || *format != format_version)
    return ignore(fmt::format("its format is not {}", format_version));
  const std::string* version_text = text_field(file, "version");
  if (!version_text || *version_text != version())
    return ignore(fmt::format("it was written by Convoy {}, this is {}",
                              version_text ? *version_text : "of no version", version()));
  const auto rows = file.find("rows");
  if (rows == file.end() || !rows->is_array()) return ignore("it has no list of rows");
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const auto& row = (*rows)[i];
    const auto bad = [&](std::string_view what) {
      return ignore(fmt::format("row {}: {}", i, what));
    };
    if (!row.is_object()) return bad("not an object");
    const std::string* machine = text_field(row, "machine");
    const std::string* isa = text_field(row, "isa");
    const std::string* stage = text_field(row, "stage");
    const std::string* kernel = text_field(row, "kernel");
    const std::string* tile = text_field(row, "tile");
    if (!machine || !isa || !stage || !kernel || !tile)
      return bad("machine, isa, stage, kernel and tile must be texts");
    const auto threads = row.find("threads");
    if (threads == row.end() || !threads->is_number_unsigned() || *threads < 1U ||
        *threads > 65536U)
      return bad("threads must be a whole number from 1");
    const auto seconds = row.find("seconds");
    if (seconds == row.end() || !seconds->is_number()) return bad("seconds must be a number");
    const double time = seconds->get<double>();
    if (!std::isfinite(time) || time <= 0) return bad("seconds must be above 0");
    try {
      cache.rows_[key(*machine, *isa, threads->get<Index>(), to_text(parse_stage(*stage)))] = {
          *kernel, *tile, time};
    } catch (const Error&) {
      return bad("its stage is not legal");
    }
  }
  return cache;
}

std::string TuningCache::to_json() const {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& [k, row] : rows_) {
    const auto parts = parts_of(k);
    rows.push_back({{"machine", parts[0]},
                    {"isa", parts[1]},
                    {"threads", std::stoll(parts[2])},
                    {"stage", parts[3]},
                    {"kernel", row.kernel},
                    {"tile", row.tile},
                    {"seconds", row.seconds}});
  }
  const nlohmann::ordered_json file = {
      {"format", format_version}, {"version", version()}, {"rows", std::move(rows)}};
  return file.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

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
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (file.descriptor < 0) {
    // No file, or no folder, is how everybody starts.
    if (errno != ENOENT && errno != ENOTDIR)
      warning = fmt::format("the tuning cache {} is ignored: {}.", path, std::strerror(errno));
    return {};
  }
  if (::fstat(file.descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) ||
      static_cast<std::size_t>(facts.st_size) > most_bytes) {
    warning = fmt::format("the tuning cache {} is ignored: not a file of at most {} MiB.", path,
                          most_bytes >> 20);
    return {};
  }
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t count = ::read(file.descriptor, text.data() + have, text.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  std::string why;
  TuningCache cache = TuningCache::parse(text, why);
  if (!why.empty()) warning = fmt::format("{}: {}", path, why);
  return cache;
}

const TuningCache& shipped_tuning() {
  static constinit Immortal<TuningCache> all;
  return all.get([] {
    TuningCache tables;
    std::string ignored;  // a test holds that there is none
    for (const std::string_view text : shipped_tuning_tables())
      tables.merge(TuningCache::parse(text, ignored));
    for (auto& [k, row] : tables.rows_) row.shipped = true;
    return tables;
  });
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

void save_tuning_cache(const std::string& path, const TuningCache& rows) {
  if (path.empty())
    throw Error(
        "tuning cache: none of CONVOY_CACHE, XDG_CACHE_HOME and HOME is set. Set "
        "CONVOY_CACHE to a folder that you may write to.");
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failure);
  if (failure) {
    errno = failure.value();
    fail(path, "make its folder");
  }
  // Two processes that tune at once: the second reads what the first wrote before it adds its own.
  const File lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.descriptor < 0 || ::flock(lock.descriptor, LOCK_EX) != 0) fail(path, "lock");
  std::string ignored;
  TuningCache merged = load_tuning_cache(path, ignored);
  merged.merge(rows);
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  try {
    const File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.descriptor < 0) fail(path, "write beside it");
    write_all(path, file.descriptor, merged.to_json());
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "replace");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace convoy
