#include "io/safetensors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "convoy/error.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"
#include "math/half.hpp"

namespace convoy::io {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t longest_header = 100'000'000;  // as the format says
constexpr int deepest = 8;                             // a header has three levels
constexpr std::uint64_t halves_at_once = 1 << 18;

// Numbers are little endian in the file, and read as they lie.
static_assert(std::endian::native == std::endian::little);
std::span<unsigned char> bytes_of(void* numbers, std::size_t bytes) {
  return {static_cast<unsigned char*>(numbers), bytes};
}

// The parser keeps the last of equal keys; the format has none.
Json parse_header(std::span<const unsigned char> text, const std::string& name) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > deepest)
      throw Error(name + ": its header is nested too deeply. Is it a safetensors file?");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw Error(fmt::format("{}: its header has \"{}\" twice. Which is meant?", name,
                              printable(parsed.get<std::string>())));
    return true;
  };
  Json header = Json::parse(text.begin(), text.end(), watch, false);
  if (!header.is_object())
    throw Error(name + ": its header is not a JSON object. Is it a safetensors file?");
  return header;
}

}  // namespace

SafeTensors::Source SafeTensors::source_of(const std::string& path) {
  const auto file = std::make_shared<const InputFile>(path);
  return {file->size(),
          [file](std::uint64_t at, std::span<unsigned char> to) { file->read(at, to); }};
}

SafeTensors::Source SafeTensors::source_of(std::vector<unsigned char> bytes) {
  const auto size = bytes.size();
  return {size, [all = std::move(bytes)](std::uint64_t at, std::span<unsigned char> to) {
            std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
          }};
}

SafeTensors::SafeTensors(const std::string& path)
    : SafeTensors(source_of(path), printable_path(path)) {}

SafeTensors::SafeTensors(std::vector<unsigned char> bytes, std::string name)
    : SafeTensors(source_of(std::move(bytes)), std::move(name)) {}

SafeTensors::SafeTensors(Source source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {
  if (source_.size < 8)
    throw Error(fmt::format("{}: {} bytes, expected a safetensors file. Was it cut short?", name_,
                            source_.size));
  std::array<unsigned char, 8> first{};
  source_.read(0, first);
  std::uint64_t size = 0;
  for (unsigned i = 8; i-- > 0;) size = size << 8 | first[i];
  if (size > source_.size - 8)
    throw Error(fmt::format("{}: its header says {} bytes, the file has {}. Was it cut short?",
                            name_, size, source_.size));
  if (size > longest_header)
    throw Error(fmt::format("{}: a header of {} bytes, expected at most {}. Is it the right file?",
                            name_, size, longest_header));
  std::vector<unsigned char> text(static_cast<std::size_t>(size));
  source_.read(8, text);
  body_ = 8 + size;
  body_size_ = source_.size - body_;
  const Json header = parse_header(text, name_);
  for (const auto& [key, json] : header.items()) {
    if (key == "__metadata__") continue;
    const auto broken = [&, &tensor = key] {
      return Error(
          fmt::format("{}: the header's entry \"{}\" is damaged: expected dtype, shape and "
                      "data_offsets within the file's {} bytes of data.",
                      name_, printable(tensor), body_size_));
    };
    if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
        !json.contains("data_offsets"))
      throw broken();
    const Json &dtype = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
    if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2 ||
        !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
      throw broken();
    Entry entry{dtype.get<std::string>(),
                {},
                offsets[0].get<std::uint64_t>(),
                offsets[1].get<std::uint64_t>()};
    for (const Json& axis : shape) {
      if (!axis.is_number_unsigned()) throw broken();
      entry.shape.push_back(axis.get<std::uint64_t>());
    }
    if (entry.begin > entry.end || entry.end > body_size_) throw broken();
    tensors_.emplace(key, std::move(entry));
  }
  check_places();
}

// The format: tensors lie one behind the other and fill the body.
void SafeTensors::check_places() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  places.reserve(tensors_.size());
  for (const auto& [key, entry] : tensors_) places.emplace_back(entry.begin, entry.end);
  std::sort(places.begin(), places.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : places) {
    if (begin != at)
      throw Error(fmt::format("{}: its tensors {} at byte {} of the data. The file is damaged.",
                              name_, begin < at ? "overlap" : "leave a hole", at));
    at = end;
  }
  if (at != body_size_)
    throw Error(fmt::format("{}: {} bytes of data, its tensors take {}. The file is damaged.",
                            name_, body_size_, at));
}

const SafeTensors::Entry& SafeTensors::entry_of(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end())
    throw Error(fmt::format("{}: holds no tensor \"{}\".", name_, printable(tensor)));
  return found->second;
}

std::vector<Index> SafeTensors::shape(const std::string& tensor) const {
  std::vector<Index> shape;
  for (const std::uint64_t size : entry_of(tensor).shape)
    shape.push_back(
        static_cast<Index>(std::min<std::uint64_t>(size, std::numeric_limits<Index>::max())));
  return shape;
}

std::vector<float> SafeTensors::values(const std::string& tensor) const {
  const Entry& entry = entry_of(tensor);
  if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16")
    throw Error(fmt::format("{}: tensor \"{}\" has type {}, expected F32, F16 or BF16.", name_,
                            printable(tensor), printable(entry.dtype, 16)));
  const std::uint64_t width = entry.dtype == "F32" ? 4 : 2;
  std::uint64_t count = 1;
  bool fits = true;
  for (const std::uint64_t size : entry.shape) {
    fits = fits && (size == 0 || count <= body_size_ / size);
    count *= size;
  }
  if (!fits || entry.end - entry.begin != count * width)
    throw Error(
        fmt::format("{}: tensor \"{}\" has {} bytes, which its shape does not say. The "
                    "file is damaged.",
                    name_, printable(tensor), entry.end - entry.begin));
  std::vector<float> values(count);
  if (width == 4) {
    source_.read(body_ + entry.begin, bytes_of(values.data(), count * width));
    return values;
  }
  std::vector<std::uint16_t> halves(std::min<std::uint64_t>(count, halves_at_once));
  for (std::uint64_t done = 0; done < count; done += halves.size()) {
    halves.resize(std::min<std::uint64_t>(count - done, halves_at_once));
    source_.read(body_ + entry.begin + done * width,
                 bytes_of(halves.data(), halves.size() * width));
    const bool f16 = entry.dtype == "F16";
    for (std::size_t i = 0; i < halves.size(); ++i)
      values[done + i] = f16 ? math::half_to_float(halves[i]) : math::bfloat_to_float(halves[i]);
  }
  return values;
}

}  // namespace convoy::io
