#include "io/weights.hpp"

#include <fmt/ranges.h>
#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/file_name.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"
#include "io/npy.hpp"
#include "math/half.hpp"

namespace convoy::io {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

[[noreturn]] void wrong_count(const std::string& name, Index found, Index count,
                              const std::string& meaning) {
  throw InvalidFile(fmt::format(
      "{}: {} values, expected {} ({}). {}", name, found, count, meaning,
      found < count ? "Was the file cut short?" : "Does it belong to another network?"));
}

// Whether an array of shape `found` holds its values in the order of `expected`: flattened, or
// with neighbouring axes behind the first one put together. Axes of 1 do not count. Other orders of
// the same sizes, as [k, r, s, c] where c = r = s, can't be told.
bool in_order_of(std::vector<Index> found, std::vector<Index> expected) {
  const bool rows = !expected.empty() && expected[0] != 1;
  std::erase(found, 1), std::erase(expected, 1);
  if (found.size() <= 1) return true;
  std::size_t i = 0, j = 0;
  if (rows && found[i++] != expected[j++]) return false;
  for (; i < found.size(); ++i) {
    Index product = 1;
    while (product < found[i] && j < expected.size()) product *= expected[j++];
    if (product != found[i]) return false;
  }
  return true;
}

void check_shape(const std::string& name, const std::vector<Index>& found,
                 const std::vector<Index>& expected, const std::string& meaning) {
  Size elements = 1, count = 1;
  for (const Index size : found) elements *= size;
  for (const Index size : expected) count *= size;
  if (elements.value() != count.value())
    wrong_count(name, elements.value(), count.value(), meaning);
  if (!in_order_of(found, expected))
    throw InvalidFile(
        fmt::format("{}: shape [{}], expected [{}] ({}), PyTorch's order, or flattened in that "
                    "order. Permute the axes and save it again.",
                    name, fmt::join(found, ","), fmt::join(expected, ","), meaning));
}

// A whole word as a number; from_chars alone refuses what is too small and a leading '+'.
bool parse_number(std::string_view word, double& value) {
  if (word.starts_with('+') && !word.starts_with("+-")) word.remove_prefix(1);
  const char *const begin = word.data(), *const end = begin + word.size();
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return false;
  if (result.ec == std::errc::result_out_of_range) {
    // Is it 0 or infinite? from_chars does not say; strtod does, in the "C" locale.
    static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
    value = strtod_l(std::string(word).c_str(), nullptr, c_locale);
  }
  return true;
}

}  // namespace

void expect_finite(const std::vector<float>& values, const std::string& name, StatusCode code) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(
          fmt::format("{}: value {} is {}, expected finite numbers. Was the training unstable?",
                      name, i + 1, values[i]),
          code);
}

std::vector<float> parse_weights(std::string_view text, const std::string& name, Index count,
                                 const std::string& meaning) {
  text = without_mark(text);
  std::vector<float> values;
  // A number takes at least two characters, so a short text can't make this large.
  values.reserve(std::min(static_cast<std::size_t>(count), text.size() / 2 + 1));
  const char* at = text.data();
  const char* const end = at + text.size();
  Index line = 1, found = 0;
  while (true) {
    for (; at != end && is_space(*at); ++at) line += *at == '\n';
    if (at == end) break;
    const char* stop = at;
    while (stop != end && !is_space(*stop)) ++stop;
    double value = 0;
    const std::string_view word(at, static_cast<std::size_t>(stop - at));
    if (!parse_number(word, value))
      throw InvalidFile(
          fmt::format("{}: line {}: \"{}\" is not a number. Expected {} numbers ({}), "
                      "separated by white space.",
                      name, line, printable(word, 24), count, meaning));
    const auto rounded =
        static_cast<float>(value);  // a little over the largest float is that float
    if (!std::isfinite(rounded))
      throw InvalidFile(
          fmt::format("{}: line {}: {} is not a finite fp32 number. Was the training unstable?",
                      name, line, printable(word, 24)));
    if (found < count) values.push_back(rounded);
    ++found;
    at = stop;
  }
  if (found != count) wrong_count(name, found, count, meaning);
  return values;
}

const SafeTensors* ParameterFolder::safetensors_with(const std::string& parameter) {
  const std::string path = folder_ + "/model.safetensors";
  if (!tensors_ && file_there(path)) tensors_.emplace(path);
  return tensors_ && tensors_->contains(parameter) ? &*tensors_ : nullptr;
}

std::string ParameterFolder::path_of(const std::string& parameter) const {
  return folder_ + "/" + file_name_of(parameter);
}

bool ParameterFolder::has(const std::string& parameter) {
  const std::string path = path_of(parameter);
  return file_there(path + ".txt") || file_there(path + ".npy") ||
         safetensors_with(parameter) != nullptr;
}

std::string ParameterFolder::name_of(const std::string& parameter) const {
  return printable_path(folder_ + "/" + parameter);
}

ParameterFolder::Place ParameterFolder::place_of(const std::string& parameter) {
  const std::string path = path_of(parameter), file = printable_path(file_name_of(parameter));
  const Place place{file_there(path + ".txt"), file_there(path + ".npy"),
                    safetensors_with(parameter)};
  std::vector<std::string> found;
  if (place.text) found.push_back(file + ".txt");
  if (place.npy) found.push_back(file + ".npy");
  if (place.tensors) found.emplace_back("model.safetensors");
  if (found.size() > 1)
    throw InvalidFile(
        fmt::format("{}: \"{}\" is given more than once, in {}, expected in one file. Remove the "
                    "outdated files.",
                    printable_path(folder_), printable(parameter), fmt::join(found, " and in ")));
  return place;
}

std::vector<float> ParameterFolder::read(const std::string& parameter,
                                         const std::vector<Index>& shape,
                                         const std::string& meaning) {
  Size product = 1;
  for (const Index size : shape) product *= size;
  const Index count = product.value();
  const std::string path = path_of(parameter);
  const Place place = place_of(parameter);
  if (place.text) {
    // No writer of numbers takes so much for one: a longer file is another, and is not read.
    const Size most = Size(count) * 64 + (Index{1} << 20);
    const auto limit = static_cast<std::size_t>(most.value());
    const auto bytes = read_file(path + ".txt", most.fits() ? std::min(limit, InputFile::most_bytes)
                                                            : InputFile::most_bytes);
    return parse_weights(text_of(bytes), printable_path(path + ".txt"), count, meaning);
  }
  std::vector<float> values;
  std::string name;
  if (place.npy) {
    name = printable_path(path + ".npy");
    const Tensor array = read_npy(path + ".npy");
    const ConstTensorView view = array.view();
    if (view.dtype != DType::f32 && view.dtype != DType::f16)
      throw InvalidFile(fmt::format(
          "{}: values of type {}, expected float32, float64 or float16. Convert with .astype.",
          name, to_text(view.dtype)));
    check_shape(name, {view.shape.begin(), view.shape.begin() + view.rank}, shape, meaning);
    values.resize(static_cast<std::size_t>(array.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = math::load(view.dtype, view.data, static_cast<Index>(i));
  } else if (place.tensors) {
    name = printable_path(folder_ + "/model.safetensors: " + parameter);
    values = place.tensors->values(parameter);
    check_shape(name, place.tensors->shape(parameter), shape, meaning);
  } else {
    throw FileNotFound(fmt::format(
        "{}: no weights \"{}\": expected {} values ({}) in {}.txt, {}.npy or "
        "model.safetensors. Copy the file into the model's folder.",
        printable_path(folder_), printable(parameter), count, meaning,
        printable_path(file_name_of(parameter)), printable_path(file_name_of(parameter))));
  }
  expect_finite(values, name, StatusCode::invalid_file);
  return values;
}

}  // namespace convoy::io
