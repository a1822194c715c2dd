#include "io/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>

#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy::io {
namespace {

struct Type {
  std::string_view text;
  DType dtype;
  std::size_t bytes;
};
// The first one of a DType is what it is written as.
constexpr Type types[] = {{"<f4", DType::f32, 4}, {"<f2", DType::f16, 2}, {"|u1", DType::u8, 1},
                          {"<i4", DType::i32, 4}, {"<f8", DType::f32, 8}, {"<i8", DType::i32, 8}};
constexpr std::string_view magic = "\x93NUMPY";

/// The text of a Python dictionary with three keys, in any order, each once:
/// {'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }
class Header {
 public:
  Header(std::string_view text, std::string_view name) : rest_(text), name_(name) {
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr")
        once(descr_given_, key), descr_ = quoted();
      else if (key == "fortran_order")
        once(order_given_, key), fortran_ = truth();
      else if (key == "shape")
        once(shape_given_, key), shape_ = sizes();
      else
        fail(fmt::format("the key '{}'", printable(key, 32)));
      if (!take(',') && (skip_space(), !rest_.starts_with('}'))) fail("no comma between its parts");
    }
    skip_space();
    if (!rest_.empty()) fail("more text after its dictionary");
    if (!descr_given_ || !order_given_ || !shape_given_)
      fail(fmt::format("no '{}'",
                       !descr_given_ ? "descr" : (!order_given_ ? "fortran_order" : "shape")));
  }
  std::string_view descr() const { return descr_; }
  bool fortran() const { return fortran_; }
  const std::vector<Index>& shape() const { return shape_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidFile(
        fmt::format("{}: its header has {}, expected a file made by numpy.save", name_, what));
  }
  void once(bool& given, std::string_view key) const {
    if (given) fail(fmt::format("'{}' twice", key));
    given = true;
  }
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool take(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool take(char c) { return take(std::string_view(&c, 1)); }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("no '{}' at its place", c));
  }
  std::string_view quoted() {
    skip_space();
    const char quote = rest_.empty() ? ' ' : rest_[0];
    const std::size_t end = rest_.find(quote, 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos)
      fail("no quoted text at its place");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool truth() {
    if (take("True")) return true;
    if (!take("False")) fail("a 'fortran_order' that is neither True nor False");
    return false;
  }
  std::vector<Index> sizes() {
    std::vector<Index> shape;
    if (!take('(')) fail("no shape like (4, 3)");
    bool comma = true;
    while (!take(')')) {
      Index size = 0;
      const auto [stop, failure] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (!comma || failure != std::errc() || size < 0)
        fail("a size in its shape that is not a number");
      if (shape.size() == 5)
        throw InvalidFile(fmt::format(
            "{}: more than 5 axes, expected at most 5. Reshape it before saving.", name_));
      shape.push_back(size);
      rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
      comma = take(',');
    }
    if (shape.size() == 1 && !comma) fail("no shape like (4,)");
    return shape;
  }

  std::string_view rest_, name_, descr_;
  bool fortran_ = false, descr_given_ = false, order_given_ = false, shape_given_ = false;
  std::vector<Index> shape_;
};

template <class From, class To>
void convert(std::string_view data, Tensor& tensor, std::string_view name) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.elements()); ++i) {
    From value;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    if constexpr (std::numeric_limits<To>::is_integer)
      if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max())
        throw InvalidFile(
            fmt::format("{}: element {} is {}, expected a 32-bit integer", name, i, value));
    tensor.data<To>()[i] = static_cast<To>(value);
  }
}

}  // namespace

Tensor parse_npy(std::string_view bytes, std::string_view name) {
  if (bytes.size() < 12 || bytes.substr(0, magic.size()) != magic)
    throw InvalidFile(fmt::format(
        "{}: not an .npy file (it does not begin with \\x93NUMPY). Save it with numpy.save.",
        name));
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0)
    throw InvalidFile(
        fmt::format("{}: .npy version {}.{}, expected 1.0, 2.0 or 3.0. Save it with numpy.save.",
                    name, byte(6), byte(7)));
  const bool long_header = byte(6) >= 2;
  std::size_t length = byte(8) | byte(9) << 8;
  if (long_header) length |= byte(10) << 16 | byte(11) << 24;
  const std::size_t start = long_header ? 12 : 10;
  if (length > bytes.size() - start)
    throw InvalidFile(fmt::format(
        "{}: its header of {} bytes ends after the file. Was the file cut short?", name, length));
  const Header header(bytes.substr(start, length), name);
  const std::string_view data = bytes.substr(start + length);

  if (header.fortran())
    throw InvalidFile(fmt::format(
        "{}: in Fortran order, expected C order. Save numpy.ascontiguousarray(array).", name));
  const std::vector<Index>& shape = header.shape();
  const Type* type = nullptr;
  for (const Type& candidate : types)
    if (candidate.text == header.descr()) type = &candidate;
  if (!type)
    throw InvalidFile(fmt::format(
        "{}: elements of type {}, expected one of <f4 <f2 |u1 <i4 <f8 <i8. Convert with .astype.",
        name, printable(header.descr(), 16)));

  std::size_t expected = type->bytes, most = expected;  // most: as if no axis were empty
  for (const Index size : shape) {
    const auto unsigned_size = static_cast<std::size_t>(size);
    if (__builtin_mul_overflow(most, std::max<std::size_t>(unsigned_size, 1), &most) ||
        most > std::size_t{1} << 60)
      throw InvalidFile(
          fmt::format("{}: the sizes of its shape need more memory than any machine has, expected "
                      "fewer. Is it the right file?",
                      name));
    expected *= unsigned_size;
  }
  if (data.size() != expected)
    throw InvalidFile(fmt::format(
        "{}: {} bytes of data, expected {} for its shape. {}", name, data.size(), expected,
        data.size() < expected ? "Was the file cut short?" : "Is it one whole file?"));
  Tensor tensor(type->dtype, shape);
  if (header.descr() == "<f8")
    convert<double, float>(data, tensor, name);
  else if (header.descr() == "<i8")
    convert<std::int64_t, std::int32_t>(data, tensor, name);
  else if (!data.empty())
    std::memcpy(tensor.data<char>(), data.data(), data.size());
  return tensor;
}

Tensor read_npy(const std::string& path) {
  const auto bytes = read_file(path);
  return parse_npy(text_of(bytes), printable_path(path));
}

std::string npy_of(const ConstTensorView& array) {
  const auto* type = std::find_if(std::begin(types), std::end(types),
                                  [&](const Type& t) { return t.dtype == array.dtype; });
  if (type == std::end(types) || !array.contiguous() || !(array.device == Device{}))
    throw InvalidOperand(
        fmt::format("an .npy file of {}: expected f32, f16, u8 or i32 values, dense, on "
                    "the host. Copy or convert them first.",
                    describe(array)));
  // In parentheses alone Python would see a number, no tuple.
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type->text,
                  fmt::join(array.shape.begin(), array.shape.begin() + array.rank, ", "),
                  array.rank == 1 ? "," : "");
  // Magic, version and length take ten bytes; the values begin at a multiple of 64.
  header.append(63 - (10 + header.size()) % 64, ' ') += '\n';
  std::string bytes(magic);
  bytes +=
      {'\1', '\0', static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256)};
  bytes += header;
  const auto values = static_cast<std::size_t>(array.elements()) * type->bytes;
  if (values > 0) bytes.append(static_cast<const char*>(array.data), values);
  return bytes;
}

}  // namespace convoy::io
