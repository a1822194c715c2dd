#include "io/safetensors.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "convoy/error.hpp"
#include "math/half.hpp"

namespace convoy::io {

namespace {

using Json = nlohmann::json;

struct File {
  Json header;
  std::span<const unsigned char> body;
};

File open(std::span<const unsigned char> bytes, const std::string& name) {
  if (bytes.size() < 8)
    throw Error(fmt::format("{}: {} bytes, expected a safetensors file. Was it cut short?", name,
                            bytes.size()));
  std::uint64_t size = 0;
  for (unsigned i = 8; i-- > 0;) size = size << 8 | bytes[i];
  if (size > bytes.size() - 8)
    throw Error(fmt::format("{}: its header says {} bytes, the file has {}. Was it cut short?",
                            name, size, bytes.size()));
  File file{Json::parse(bytes.data() + 8, bytes.data() + 8 + size, nullptr, false),
            bytes.subspan(8 + static_cast<std::size_t>(size))};
  if (!file.header.is_object())
    throw Error(name + ": its header is not a JSON object. Is it a safetensors file?");
  return file;
}

}  // namespace

bool has_safetensor(std::span<const unsigned char> bytes, const std::string& name,
                    const std::string& tensor) {
  return open(bytes, name).header.contains(tensor);
}

std::vector<float> parse_safetensors(std::span<const unsigned char> bytes, const std::string& name,
                                     const std::string& tensor) {
  const File file = open(bytes, name);
  const Json& json = file.header;
  const auto body = file.body;
  const auto found = json.find(tensor);
  if (found == json.end()) throw Error(fmt::format("{}: holds no tensor \"{}\".", name, tensor));
  const auto broken = [&] {
    return Error(
        fmt::format("{}: the header's entry \"{}\" is damaged: expected dtype, shape and "
                    "data_offsets within the file's {} bytes of data.",
                    name, tensor, body.size()));
  };
  if (!found->is_object() || !found->contains("dtype") || !found->contains("shape") ||
      !found->contains("data_offsets"))
    throw broken();
  const Json &dtype = (*found)["dtype"], &shape = (*found)["shape"],
             &offsets = (*found)["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    throw broken();
  const std::string type = dtype.get<std::string>();
  if (type != "F32" && type != "F16" && type != "BF16")
    throw Error(fmt::format("{}: tensor \"{}\" has type {}, expected F32, F16 or BF16.", name,
                            tensor, type));
  const std::uint64_t width = type == "F32" ? 4 : 2;
  std::uint64_t count = 1;
  for (const Json& size : shape) {
    if (!size.is_number_unsigned()) throw broken();
    const auto value = size.get<std::uint64_t>();
    if (value != 0 && count > body.size() / value) throw broken();
    count *= value;
  }
  const auto first = offsets[0].get<std::uint64_t>(), last = offsets[1].get<std::uint64_t>();
  if (first > last || last > body.size() || last - first != count * width) throw broken();
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned char* const at = body.data() + first + i * width;
    if (width == 4) {
      values[i] = math::float_of(at[0] | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 |
                                 std::uint32_t{at[3]} << 24);
    } else {
      const auto half = static_cast<std::uint16_t>(at[0] | at[1] << 8);
      values[i] = type == "F16" ? math::half_to_float(half) : math::bfloat_to_float(half);
    }
  }
  return values;
}

}  // namespace convoy::io
