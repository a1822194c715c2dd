#include "io/safetensors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "math/half.hpp"

namespace convoy::io {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t longest_header = 100'000'000;  // as the format says
constexpr int deepest = 8;                             // a header has three levels

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

SafeTensors::SafeTensors(std::vector<unsigned char> bytes, std::string name)
    : bytes_(std::move(bytes)), name_(std::move(name)) {
  if (bytes_.size() < 8)
    throw Error(fmt::format("{}: {} bytes, expected a safetensors file. Was it cut short?", name_,
                            bytes_.size()));
  std::uint64_t size = 0;
  for (unsigned i = 8; i-- > 0;) size = size << 8 | bytes_[i];
  if (size > bytes_.size() - 8)
    throw Error(fmt::format("{}: its header says {} bytes, the file has {}. Was it cut short?",
                            name_, size, bytes_.size()));
  if (size > longest_header)
    throw Error(fmt::format("{}: a header of {} bytes, expected at most {}. Is it the right file?",
                            name_, size, longest_header));
  const std::span<const unsigned char> all = bytes_;
  body_ = all.subspan(8 + static_cast<std::size_t>(size));
  const Json header = parse_header(all.subspan(8, static_cast<std::size_t>(size)), name_);
  for (const auto& [key, json] : header.items()) {
    if (key == "__metadata__") continue;
    const auto broken = [&, &tensor = key] {
      return Error(
          fmt::format("{}: the header's entry \"{}\" is damaged: expected dtype, shape and "
                      "data_offsets within the file's {} bytes of data.",
                      name_, printable(tensor), body_.size()));
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
    if (entry.begin > entry.end || entry.end > body_.size()) throw broken();
    tensors_.emplace(key, std::move(entry));
  }
  check_places();
}

// The format: tensors lie one behind the other and fill the body.
void SafeTensors::check_places() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const auto& [key, entry] : tensors_) places.emplace_back(entry.begin, entry.end);
  std::sort(places.begin(), places.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : places) {
    if (begin != at)
      throw Error(fmt::format("{}: its tensors {} at byte {} of the data. The file is damaged.",
                              name_, begin < at ? "overlap" : "leave a hole", at));
    at = end;
  }
  if (at != body_.size())
    throw Error(fmt::format("{}: {} bytes of data, its tensors take {}. The file is damaged.",
                            name_, body_.size(), at));
}

std::vector<float> SafeTensors::values(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end())
    throw Error(fmt::format("{}: holds no tensor \"{}\".", name_, printable(tensor)));
  const Entry& entry = found->second;
  if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16")
    throw Error(fmt::format("{}: tensor \"{}\" has type {}, expected F32, F16 or BF16.", name_,
                            printable(tensor), printable(entry.dtype, 16)));
  const std::uint64_t width = entry.dtype == "F32" ? 4 : 2;
  std::uint64_t count = 1;
  bool fits = true;
  for (const std::uint64_t size : entry.shape) {
    fits = fits && (size == 0 || count <= body_.size() / size);
    count *= size;
  }
  if (!fits || entry.end - entry.begin != count * width)
    throw Error(
        fmt::format("{}: tensor \"{}\" has {} bytes, which its shape does not say. The "
                    "file is damaged.",
                    name_, printable(tensor), entry.end - entry.begin));
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned char* const at = body_.data() + entry.begin + i * width;
    if (width == 4) {
      values[i] = math::float_of(at[0] | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 |
                                 std::uint32_t{at[3]} << 24);
    } else {
      const auto half = static_cast<std::uint16_t>(at[0] | at[1] << 8);
      values[i] = entry.dtype == "F16" ? math::half_to_float(half) : math::bfloat_to_float(half);
    }
  }
  return values;
}

}  // namespace convoy::io
