#include "plan/tuning_cache.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "core/build.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "core/process.hpp"

namespace convoy {
namespace {

constexpr int format_version = 2;
constexpr std::size_t most_bytes = 64 << 20;  // a row takes about 200
constexpr std::size_t longest_text =
    20'000;  // longer than the canonical text of any chain that is tuned

// The parts are joined by a character that is in none of them.
std::string key(std::string_view machine, std::string_view cpu_model, std::string_view isa,
                Index threads, std::string_view stage) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", machine, cpu_model, isa, threads, stage);
}
std::string key(const Machine& machine, std::string_view stage) {
  return key(machine.name, machine.cpu_model, machine.isa, machine.threads, stage);
}

std::array<std::string, 5> parts_of(const std::string& key) {
  std::array<std::string, 5> parts;
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
  return !text.empty() && text.size() <= longest_text && is_printable(text) ? &text : nullptr;
}

// Kernels that fold constants in run no chain without them: they tell no two chains apart.
std::string text_of(Chain chain) {
  chain.constants = false;
  return to_text(chain);
}

// Of a stage or a chain; between the stages of a chain the types are a GPU's or a CPU's.
std::string canonical_text(const std::string& text) {
  try {
    return text_of(parse_chain(text, true));
  } catch (const Error&) {
    return text_of(parse_chain(text, false));
  }
}

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw Error(
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
      fail(path, fmt::format("{} is no regular file. Remove it", printable_path(name_)));
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(wait);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)
        fail(path, fmt::format("it can't be locked: {}", std::strerror(errno)));
      if (Clock::now() > until)
        throw Error(fmt::format(
            "tuning cache {0}: another process has held {1} for {2} seconds, so that nothing was "
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

const TunedTile* TuningCache::find(const Machine& machine, const Chain& chain) const {
  if (rows_.empty()) return nullptr;
  auto row = rows_.find(key(machine, text_of(chain)));
  if (row == rows_.end() && chain.front().dtype == DType::bf16) {
    OwnedChain twin(chain);
    for (Stage& stage : twin.stages) stage.dtype = DType::f16;
    row = rows_.find(key(machine, text_of(twin)));
  }
  return row == rows_.end() ? nullptr : &row->second;
}

void TuningCache::set(const Machine& machine, const Chain& chain, TunedTile row) {
  rows_[key(machine, text_of(chain))] = std::move(row);
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
                              version_text ? printable(*version_text, 40) : "of no version",
                              version()));
  // A table that ships with the library names no build: it is of this one.
  if (file.contains("build")) {
    const std::string* built = text_field(file, "build");
    if (!built || *built != build().text())
      return ignore(fmt::format("it was written by the build {}, this is {}",
                                built ? printable(*built, 80) : "of no name", build().text()));
  }
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
    const std::string* cpu_model = text_field(row, "cpu_model");
    const std::string* date = text_field(row, "date");
    if ((row.contains("cpu_model") && !cpu_model) || (row.contains("date") && !date))
      return bad("cpu_model and date must be texts");
    const auto threads = row.find("threads");
    if (threads == row.end() || !threads->is_number_unsigned() || *threads < 1U ||
        *threads > 65536U)
      return bad("threads must be a whole number from 1");
    const auto seconds = row.find("seconds");
    if (seconds == row.end() || !seconds->is_number()) return bad("seconds must be a number");
    const double time = seconds->get<double>();
    if (!std::isfinite(time) || time <= 0) return bad("seconds must be above 0");
    try {
      cache.rows_[key(*machine, cpu_model ? *cpu_model : "", *isa, threads->get<Index>(),
                      canonical_text(*stage))] = {*kernel, *tile, time, false, date ? *date : ""};
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
    nlohmann::ordered_json json{{"machine", parts[0]}};
    if (!parts[1].empty()) json["cpu_model"] = parts[1];  // a GPU has none
    json.update({{"isa", parts[2]},
                 {"threads", std::stoll(parts[3])},
                 {"stage", parts[4]},
                 {"kernel", row.kernel},
                 {"tile", row.tile},
                 {"seconds", row.seconds}});
    if (!row.date.empty()) json["date"] = row.date;
    rows.push_back(std::move(json));
  }
  const nlohmann::ordered_json file = {{"format", format_version},
                                       {"version", version()},
                                       {"build", build().text()},
                                       {"rows", std::move(rows)}};
  return json_text(file, 1) + "\n";
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

void save_tuning_cache(const std::string& path, const TuningCache& rows, double wait) {
  if (path.empty())
    throw Error(
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
    throw Error(fmt::format("tuning cache {} Or set CONVOY_CACHE to another.", error.what()));
  }
}

}  // namespace convoy
