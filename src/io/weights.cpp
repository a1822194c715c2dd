#include "io/weights.hpp"

#include <fmt/core.h>
#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "convoy/error.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"
#include "io/npy.hpp"

namespace convoy::io {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

[[noreturn]] void wrong_count(const std::string& name, Index found, Index count,
                              const std::string& meaning) {
  throw Error(fmt::format(
      "{}: {} values, expected {} ({}). {}", name, found, count, meaning,
      found < count ? "Was the file cut short?" : "Does it belong to another network?"));
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

void expect_finite(const std::vector<float>& values, const std::string& name) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(
          fmt::format("{}: value {} is {}, expected finite numbers. Was the training unstable?",
                      name, i + 1, values[i]));
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
      throw Error(
          fmt::format("{}: line {}: \"{}\" is not a number. Expected {} numbers ({}), "
                      "separated by white space.",
                      name, line, printable(word, 24), count, meaning));
    const auto rounded =
        static_cast<float>(value);  // a little over the largest float is that float
    if (!std::isfinite(rounded))
      throw Error(
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

bool ParameterFolder::has(const std::string& parameter) {
  const std::string path = folder_ + "/" + parameter;
  return file_there(path + ".txt") || file_there(path + ".npy") ||
         safetensors_with(parameter) != nullptr;
}

std::string ParameterFolder::name_of(const std::string& parameter) const {
  return printable_path(folder_ + "/" + parameter);
}

std::vector<float> ParameterFolder::read(const std::string& parameter,
                                         const std::vector<Index>& shape,
                                         const std::string& meaning) {
  Size product = 1;
  for (const Index size : shape) product *= size;
  const Index count = product.value();
  const std::string path = folder_ + "/" + parameter;
  if (file_there(path + ".txt")) {
    const auto bytes = read_file(path + ".txt");
    return parse_weights(text_of(bytes), printable_path(path + ".txt"), count, meaning);
  }
  std::vector<float> values;
  std::string name;
  if (file_there(path + ".npy")) {
    name = printable_path(path + ".npy");
    const Tensor array = read_npy(path + ".npy");
    if (array.view().dtype != DType::f32)
      throw Error(fmt::format("{}: values of type {}, expected f4 or f8.", name,
                              to_text(array.view().dtype)));
    values.assign(array.data<float>(), array.data<float>() + array.elements());
  } else if (const SafeTensors* const tensors = safetensors_with(parameter)) {
    name = printable_path(folder_ + "/model.safetensors: " + parameter);
    values = tensors->values(parameter);
  } else {
    throw Error(
        fmt::format("{}: no weights \"{}\": expected {} values ({}) in {}.txt, {}.npy or "
                    "model.safetensors. Copy the file into the model's folder.",
                    printable_path(folder_), printable(parameter), count, meaning,
                    printable(parameter), printable(parameter)));
  }
  const auto found = static_cast<Index>(values.size());
  if (found != count) wrong_count(name, found, count, meaning);
  expect_finite(values, name);
  return values;
}

}  // namespace convoy::io
