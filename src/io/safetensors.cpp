#include "io/safetensors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "convoy/error.hpp"
#include "core/failure.hpp"
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

/// What the header says of one tensor, and whether that is what it must be.
struct Said {
  bool dtype = false, shape = false, offsets = false, damaged = false;
  std::string type;
  std::vector<std::uint64_t> sizes, places;
  bool whole() const { return dtype && shape && offsets && !damaged && places.size() == 2; }
};

/// Reads the header as it comes, in time that grows with its length. No tree of it is built: that
/// would take many times its memory, and taking it down allocates.
class SafetensorsHeader : public nlohmann::json_sax<Json> {
 public:
  explicit SafetensorsHeader(const std::string& name) : name_(name) {}
  std::map<std::string, Said> tensors;
  bool is_object = false;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool number_unsigned(number_unsigned_t number) override {
    if (depth_ != 3 || !tensor_ || !in_list_) return other();
    (field_ == Field::shape ? tensor_->sizes : tensor_->places).push_back(number);
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ != 2 || !tensor_ || field_ != Field::dtype) return other();
    tensor_->type = std::move(text);
    tensor_->dtype = true;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0) is_object = true;
    if (depth_ > 1) static_cast<void>(other());
    keys_.emplace_back();
    return deeper();
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      throw InvalidFile(
          fmt::format("{}: its header has \"{}\" twice, expected once. Write the file again.",
                      name_, printable(key)));
    if (depth_ == 1) tensor_ = key == "__metadata__" ? nullptr : &tensors[key];
    if (depth_ == 2)
      field_ = key == "dtype"          ? Field::dtype
               : key == "shape"        ? Field::shape
               : key == "data_offsets" ? Field::offsets
                                       : Field::none;
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    in_list_ = depth_ == 2 && tensor_ && (field_ == Field::shape || field_ == Field::offsets);
    if (in_list_)
      (field_ == Field::shape ? tensor_->shape : tensor_->offsets) = true;
    else
      static_cast<void>(other());
    return deeper();
  }
  bool end_array() override {
    --depth_;
    if (depth_ == 2) in_list_ = false;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  enum class Field { none, dtype, shape, offsets };

  /// A value that is not the one expected at this place; what no field of a tensor names is free.
  bool other() {
    if (tensor_ && (depth_ == 1 || (depth_ >= 2 && field_ != Field::none))) tensor_->damaged = true;
    return true;
  }
  bool deeper() {
    if (depth_ == 1) field_ = Field::none;
    if (++depth_ > deepest)
      throw InvalidFile(name_ + ": its header is nested too deeply. Is it a safetensors file?");
    return true;
  }

  const std::string& name_;
  std::vector<std::set<std::string>> keys_;  // of each object around this place
  int depth_ = 0;
  Said* tensor_ = nullptr;
  Field field_ = Field::none;
  bool in_list_ = false;
};

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
    throw InvalidFile(fmt::format("{}: {} bytes, expected a safetensors file. Was it cut short?",
                                  name_, source_.size));
  std::array<unsigned char, 8> first{};
  source_.read(0, first);
  std::uint64_t size = 0;
  for (unsigned i = 8; i-- > 0;) size = size << 8 | first[i];
  if (size > source_.size - 8)
    throw InvalidFile(
        fmt::format("{}: its header gives {} bytes, but the file has {}. Was it cut short?", name_,
                    size, source_.size));
  if (size > longest_header)
    throw InvalidFile(
        fmt::format("{}: a header of {} bytes, expected at most {}. Is it the right file?", name_,
                    size, longest_header));
  std::vector<unsigned char> text(static_cast<std::size_t>(size));
  source_.read(8, text);
  body_ = 8 + size;
  body_size_ = source_.size - body_;
  SafetensorsHeader header(name_);
  if (!Json::sax_parse(text.begin(), text.end(), &header) || !header.is_object)
    throw InvalidFile(name_ + ": its header is not a JSON object. Is it a safetensors file?");
  for (auto& [key, said] : header.tensors) {
    if (!said.whole() || said.places[0] > said.places[1] || said.places[1] > body_size_)
      throw InvalidFile(
          fmt::format("{}: the header's entry \"{}\" is damaged: expected dtype, shape and "
                      "data_offsets within the file's {} bytes of data.",
                      name_, printable(key), body_size_));
    tensors_.emplace(
        key, Entry{std::move(said.type), std::move(said.sizes), said.places[0], said.places[1]});
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
      throw InvalidFile(
          fmt::format("{}: its tensors {} at byte {} of the data. The file is damaged.", name_,
                      begin < at ? "overlap" : "leave a hole", at));
    at = end;
  }
  if (at != body_size_)
    throw InvalidFile(
        fmt::format("{}: {} bytes of data, expected {} for its tensors. The file is damaged.",
                    name_, body_size_, at));
}

const SafeTensors::Entry& SafeTensors::entry_of(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end())
    throw InvalidFile(
        fmt::format("{}: it has no tensor \"{}\". Check the name.", name_, printable(tensor)));
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
    throw InvalidFile(fmt::format("{}: tensor \"{}\" has type {}, expected F32, F16 or BF16.",
                                  name_, printable(tensor), printable(entry.dtype, 16)));
  const std::uint64_t width = entry.dtype == "F32" ? 4 : 2;
  std::uint64_t count = 1;
  bool fits = true;
  for (const std::uint64_t size : entry.shape) {
    fits = fits && (size == 0 || count <= body_size_ / size);
    count *= size;
  }
  if (!fits || entry.end - entry.begin != count * width)
    throw InvalidFile(
        fmt::format("{}: tensor \"{}\" has {} bytes, expected another number for its shape. The "
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
