#include "plan/tuning_cache.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

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

/// A value of the file: a text, a number, or something else.
struct Value {
  enum class Kind { none, text, whole, number, other };
  Kind kind = Kind::none;
  std::string text = {};
  std::uint64_t whole = 0;
  double number = 0;

  bool is_there() const { return kind != Kind::none; }
  /// Null when it is not there, empty, too long or has a control character.
  const std::string* readable() const {
    const bool good =
        kind == Kind::text && !text.empty() && text.size() <= longest_text && is_printable(text);
    return good ? &text : nullptr;
  }
};

constexpr std::array<std::string_view, 3> file_fields{"format", "version", "build"};
constexpr std::array<std::string_view, 8> row_fields{"machine", "cpu_model", "isa",  "threads",
                                                     "stage",   "kernel",    "tile", "seconds"};

struct Row {
  bool is_object = false;
  std::array<Value, row_fields.size() + 1> fields{};  // the last: its date
  const Value& operator[](std::string_view name) const {
    return fields[static_cast<std::size_t>(std::find(row_fields.begin(), row_fields.end(), name) -
                                           row_fields.begin())];
  }
};

/// Reads the file as it comes. A tree of JSON values would have to be taken down, which allocates:
/// a plan could not say that memory is short. Of equal keys the last counts.
class CacheFile : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::array<Value, file_fields.size()> fields{};
  std::vector<Row> rows;
  bool is_object = false, has_rows = false;

  bool null() override { return take({.kind = Value::Kind::other}); }
  bool boolean(bool) override { return null(); }
  bool binary(binary_t&) override { return null(); }
  bool number_integer(number_integer_t number) override {
    return take({.kind = Value::Kind::number, .number = static_cast<double>(number)});
  }
  bool number_unsigned(number_unsigned_t number) override {
    return take(
        {.kind = Value::Kind::whole, .whole = number, .number = static_cast<double>(number)});
  }
  bool number_float(number_float_t number, const string_t&) override {
    return take({.kind = Value::Kind::number, .number = number});
  }
  bool string(string_t& text) override {
    return take({.kind = Value::Kind::text, .text = std::move(text)});
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0) is_object = true;
    if (depth_ == 2 && in_rows_)
      rows.push_back({.is_object = true});
    else
      static_cast<void>(null());
    return deeper();
  }
  bool start_array(std::size_t) override {
    if (depth_ == 1 && of_rows_) {
      in_rows_ = has_rows = true;
      rows.clear();
    } else {
      static_cast<void>(null());
    }
    return deeper();
  }
  bool key(string_t& key) override {
    field_ = nullptr;
    if (depth_ == 1) {
      of_rows_ = key == "rows";
      const auto at = std::find(file_fields.begin(), file_fields.end(), key);
      if (at != file_fields.end())
        field_ = &fields[static_cast<std::size_t>(at - file_fields.begin())];
    } else if (depth_ == 3 && in_rows_) {
      const auto at = std::find(row_fields.begin(), row_fields.end(), key);
      if (at != row_fields.end() || key == "date")
        field_ = &rows.back().fields[static_cast<std::size_t>(at - row_fields.begin())];
    }
    return true;
  }
  bool end_object() override { return higher(); }
  bool end_array() override { return higher(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool take(Value value) {
    if (depth_ == 1 && of_rows_) {  // rows that are no list
      has_rows = false;
      rows.clear();
    } else if (depth_ == 2 && in_rows_) {
      rows.emplace_back();
    } else if (field_) {
      *field_ = std::move(value);
    }
    return true;
  }
  bool deeper() {
    ++depth_;
    field_ = nullptr;
    return true;
  }
  bool higher() {
    --depth_;
    field_ = nullptr;
    if (depth_ == 1) in_rows_ = false;
    return true;
  }

  int depth_ = 0;
  bool of_rows_ = false, in_rows_ = false;
  Value* field_ = nullptr;  // what the next value is of
};

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
  CacheFile file;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &file) || !file.is_object)
    return ignore("it is not a JSON object (was it cut short?)");
  const auto& [format, version_there, built] = file.fields;
  if (format.kind != Value::Kind::whole || format.whole != format_version)
    return ignore(fmt::format("its format is not {}", format_version));
  const std::string* version_text = version_there.readable();
  if (!version_text || *version_text != version())
    return ignore(fmt::format("it was written by Convoy {}, this is {}",
                              version_text ? printable(*version_text, 40) : "of no version",
                              version()));
  // A table that ships with the library names no build: it is of this one.
  if (built.is_there()) {
    const std::string* name = built.readable();
    if (!name || *name != build().text())
      return ignore(fmt::format("it was written by the build {}, this is {}",
                                name ? printable(*name, 80) : "of no name", build().text()));
  }
  if (!file.has_rows) return ignore("it has no list of rows");
  for (std::size_t i = 0; i < file.rows.size(); ++i) {
    const Row& row = file.rows[i];
    const auto bad = [&](std::string_view what) {
      return ignore(fmt::format("row {}: {}", i, what));
    };
    if (!row.is_object) return bad("not an object");
    const std::string* machine = row["machine"].readable();
    const std::string* isa = row["isa"].readable();
    const std::string* stage = row["stage"].readable();
    const std::string* kernel = row["kernel"].readable();
    const std::string* tile = row["tile"].readable();
    if (!machine || !isa || !stage || !kernel || !tile)
      return bad("machine, isa, stage, kernel and tile must be texts");
    const std::string* cpu_model = row["cpu_model"].readable();
    const std::string* date = row["date"].readable();
    if ((row["cpu_model"].is_there() && !cpu_model) || (row["date"].is_there() && !date))
      return bad("cpu_model and date must be texts");
    const Value& threads = row["threads"];
    if (threads.kind != Value::Kind::whole || threads.whole < 1 || threads.whole > 65536)
      return bad("threads must be a whole number from 1");
    const Value& seconds = row["seconds"];
    if (seconds.kind != Value::Kind::whole && seconds.kind != Value::Kind::number)
      return bad("seconds must be a number");
    const double time = seconds.number;
    if (!std::isfinite(time) || time <= 0) return bad("seconds must be above 0");
    try {
      cache.rows_[key(*machine, cpu_model ? *cpu_model : "", *isa,
                      static_cast<Index>(threads.whole), canonical_text(*stage))] = {
          *kernel, *tile, time, false, date ? *date : ""};
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

}  // namespace convoy
