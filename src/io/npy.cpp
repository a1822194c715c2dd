#include "io/npy.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

namespace convoy::io {
namespace {

// The header is the text of a Python dictionary: {'descr': '<f4', 'fortran_order': False,
// 'shape': (4, 3), }. What follows a key is all that is needed.
std::string_view after_key(std::string_view header, std::string_view key, std::string_view name) {
  const std::size_t at = header.find(key);
  const std::size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos)
    throw Error(
        fmt::format("{}: its header has no {}, expected a file made by numpy.save", name, key));
  std::string_view value = header.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

std::vector<Index> parse_shape(std::string_view text, std::string_view name) {
  std::vector<Index> shape;
  const std::size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string_view::npos)
    throw Error(fmt::format(
        "{}: its header has no shape like (4, 3), expected a file made by numpy.save", name));
  text = text.substr(1, end - 1);
  while (true) {
    const std::size_t start = text.find_first_not_of(" ,");
    if (start == std::string_view::npos) return shape;
    text.remove_prefix(start);
    Index size = 0;
    const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (failure != std::errc() || size < 0)
      throw Error(fmt::format(
          "{}: a size in its shape is no number, expected a file made by numpy.save", name));
    shape.push_back(size);
    if (shape.size() > 5)
      throw Error(
          fmt::format("{}: more than 5 axes, expected at most 5. Reshape it before saving.", name));
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  }
}

template <class From, class To>
void convert(std::string_view data, Tensor& tensor, std::string_view name) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.elements()); ++i) {
    From value;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    if constexpr (std::numeric_limits<To>::is_integer)
      if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max())
        throw Error(fmt::format("{}: element {} is {}, expected a 32-bit integer", name, i, value));
    tensor.data<To>()[i] = static_cast<To>(value);
  }
}

}  // namespace

Tensor parse_npy(std::string_view bytes, std::string_view name) {
  constexpr std::string_view magic = "\x93NUMPY";
  if (bytes.size() < 12 || bytes.substr(0, magic.size()) != magic)
    throw Error(fmt::format(
        "{}: no .npy file (it does not begin with \\x93NUMPY). Save it with numpy.save.", name));
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const bool long_header = bytes[6] >= 2;
  std::size_t length = byte(8) | byte(9) << 8;
  if (long_header) length |= byte(10) << 16 | byte(11) << 24;
  const std::size_t start = long_header ? 12 : 10;
  if (length > bytes.size() - start)
    throw Error(fmt::format(
        "{}: its header of {} bytes ends after the file. Was the file cut short?", name, length));
  const std::string_view header = bytes.substr(start, length);
  const std::string_view data = bytes.substr(start + length);

  if (after_key(header, "'fortran_order'", name).substr(0, 4) == "True")
    throw Error(fmt::format(
        "{}: in Fortran order, expected C order. Save numpy.ascontiguousarray of it.", name));
  const std::vector<Index> shape = parse_shape(after_key(header, "'shape'", name), name);
  const std::string_view descr = after_key(header, "'descr'", name);
  const std::string_view quoted = descr.size() > 5 ? descr.substr(1, 3) : descr;
  struct Type {
    std::string_view text;
    DType dtype;
    std::size_t bytes;
  };
  constexpr Type types[] = {{"<f4", DType::f32, 4}, {"<f2", DType::f16, 2}, {"|u1", DType::u8, 1},
                            {"<i4", DType::i32, 4}, {"<f8", DType::f32, 8}, {"<i8", DType::i32, 8}};
  const Type* type = nullptr;
  for (const Type& candidate : types)
    if (candidate.text == quoted) type = &candidate;
  if (!type)
    throw Error(fmt::format(
        "{}: elements of type {}, expected one of <f4 <f2 |u1 <i4 <f8 <i8. Convert with .astype.",
        name, quoted.substr(0, 16)));

  std::size_t expected = type->bytes, most = expected;  // most: as if no axis were empty
  for (const Index size : shape) {
    const auto unsigned_size = static_cast<std::size_t>(size);
    if (__builtin_mul_overflow(most, std::max<std::size_t>(unsigned_size, 1), &most) ||
        most > std::size_t{1} << 60)
      throw Error(fmt::format("{}: the sizes of its shape are more than memory can hold", name));
    expected *= unsigned_size;
  }
  if (data.size() != expected)
    throw Error(
        fmt::format("{}: {} bytes of data, expected {} for its shape. Was the file cut short?",
                    name, data.size(), expected));
  Tensor tensor(type->dtype, shape);
  if (quoted == "<f8")
    convert<double, float>(data, tensor, name);
  else if (quoted == "<i8")
    convert<std::int64_t, std::int32_t>(data, tensor, name);
  else if (!data.empty())
    std::memcpy(tensor.data<char>(), data.data(), data.size());
  return tensor;
}

Tensor read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(
        fmt::format("{}: can't be read. Is the path right, and the file yours to read?", path));
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return parse_npy(bytes.view(), path);
}

}  // namespace convoy::io
