#include "io/weights.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "convoy/error.hpp"
#include "io/file.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

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

void check_finite(const std::vector<float>& values, const std::string& name) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(
          fmt::format("{}: value {} is {}, expected finite numbers. Was the training unstable?",
                      name, i + 1, values[i]));
}

/// A word as it may be printed: short, without control characters.
std::string shown(std::string_view word) {
  std::string text(word.substr(0, 24));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return text + (word.size() > 24 ? "..." : "");
}

}  // namespace

std::vector<float> parse_weights(std::string_view text, const std::string& name, Index count,
                                 const std::string& meaning) {
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
    const char* const digits = *at == '+' ? at + 1 : at;
    const auto result = std::from_chars(digits, stop, value);
    // from_chars leaves the value alone when it is out of range: 1e-400 is 0, 1e400 an error.
    const std::string_view word(at, static_cast<std::size_t>(stop - at));
    const bool underflow =
        result.ec == std::errc::result_out_of_range && word.find("e-") != std::string_view::npos;
    if ((result.ec != std::errc() && !underflow) || result.ptr != stop)
      throw Error(
          fmt::format("{}: line {}: \"{}\" is not a number. Expected {} numbers ({}), "
                      "separated by white space.",
                      name, line, shown(word), count, meaning));
    const auto rounded =
        static_cast<float>(value);  // a little over the largest float is that float
    if (!std::isfinite(rounded))
      throw Error(
          fmt::format("{}: line {}: {} is not a finite fp32 number. Was the training unstable?",
                      name, line, shown(word)));
    if (found < count) values.push_back(rounded);
    ++found;
    at = stop;
  }
  if (found != count) wrong_count(name, found, count, meaning);
  return values;
}

bool has_parameter(const std::string& folder, const std::string& parameter) {
  const std::string safetensors = folder + "/model.safetensors";
  return file_exists(folder + "/" + parameter + ".txt") ||
         file_exists(folder + "/" + parameter + ".npy") ||
         (file_exists(safetensors) &&
          has_safetensor(read_file(safetensors), safetensors, parameter));
}

std::vector<float> read_parameter(const std::string& folder, const std::string& parameter,
                                  Index count, const std::string& meaning) {
  const std::string text = folder + "/" + parameter + ".txt";
  const std::string npy = folder + "/" + parameter + ".npy";
  const std::string safetensors = folder + "/model.safetensors";
  if (file_exists(text)) {
    const auto bytes = read_file(text);
    return parse_weights({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, text, count,
                         meaning);
  }
  std::vector<float> values;
  std::string name;
  if (file_exists(npy)) {
    name = npy;
    const Tensor array = read_npy(npy);
    if (array.view().dtype != DType::f32)
      throw Error(fmt::format("{}: values of type {}, expected f4 or f8.", npy,
                              convoy::name(array.view().dtype)));
    values.assign(array.data<float>(), array.data<float>() + array.elements());
  } else if (has_parameter(folder, parameter)) {
    name = safetensors + ": " + parameter;
    const auto bytes = read_file(safetensors);
    values = parse_safetensors(bytes, safetensors, parameter);
  } else {
    throw Error(
        fmt::format("{}: no weights \"{}\": expected {} values ({}) in {}.txt, {}.npy or "
                    "model.safetensors. Copy the file into the model's folder.",
                    folder, parameter, count, meaning, parameter, parameter));
  }
  const auto found = static_cast<Index>(values.size());
  if (found != count) wrong_count(name, found, count, meaning);
  check_finite(values, name);
  return values;
}

}  // namespace convoy::io
