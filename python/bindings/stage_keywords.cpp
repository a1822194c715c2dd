#include "stage_keywords.hpp"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/stage_text.hpp"
#include "errors.hpp"
#include "stage.hpp"
#include "stage_values.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// Each is a property of convoy.Stage too.
constexpr const char* keyword_names[] = {"dtype",  "n",    "h",      "w",    "c",     "k",
                                         "r",      "s",    "stride", "pad",  "dil",   "groups",
                                         "layout", "out",  "bias",   "norm", "act",   "soft",
                                         "t",      "hold", "pool",   "keep", "strict"};

/// The text of the keywords, which parse_stage then reads: one grammar, and its errors.
std::string text_of_keywords(const nb::dict& given) {
  std::string text;
  const auto what = [](const char* key) { return fmt::format("Stage: {}", key); };
  const auto has = [&](const char* key) { return given.contains(key); };
  const auto word = [&](const char* key) { return sizes_text(what(key), given[key]); };
  const auto add = [&](const char* before, const std::string& value, const char* after = "") {
    text += before + value + after;
  };
  if (has("dtype")) add("", word("dtype"), ":");
  for (const char* const axis : {"n", "h", "w", "c", "k", "r", "s"}) {
    if (has(axis))
      add(axis, word(axis));
    else if (axis[0] == 'n')
      text += "n1";
  }
  for (const char* const option : {"stride", "pad", "dil", "groups"})
    if (has(option)) add(option, word(option));
  if (has("layout")) {
    const std::string layout = word("layout");
    if (layout != "nhwc" && layout != "nchw")
      throw Error(fmt::format("layout: '{}', expected 'nhwc' or 'nchw'", layout));
    if (layout == "nchw") text += "nchw";
  }
  if (has("out") && !given["out"].is_none()) add("out(", word("out"), ")");
  const auto flag = [&](const char* key) {
    if (has(key) && flag_of(what(key), given[key])) text += fmt::format("+{}", key);
  };
  flag("bias");
  flag("norm");
  if (has("act")) text += act_text(what("act"), given["act"]);
  flag("soft");
  if (has("t")) add("+t", word("t"));
  flag("hold");
  if (has("pool")) text += pool_text(what("pool"), given["pool"]);
  if (has("keep")) text += keep_text(what("keep"), given["keep"]);
  flag("strict");
  return text;
}

void check_names(const nb::dict& keywords) {
  for (auto [key, value] : keywords) {
    const std::string name = utf8_of(key);
    bool known = false;
    std::string all;
    for (const char* const one : keyword_names) {
      known = known || name == one;
      all += fmt::format("{}{}", all.empty() ? "" : ", ", one);
    }
    if (!known)
      throw Error(fmt::format("Stage: found the keyword '{}', expected one of: {}", name, all));
  }
}

/// Whether the text gave this axis, or the type; empty for every other keyword.
std::optional<bool> given_by_text(const GivenAxes& given, std::string_view name) {
  if (name == "dtype") return given.dtype;
  if (name == "n") return given.n;
  if (name == "h") return given.h;
  if (name == "w") return given.w;
  if (name == "c") return given.c;
  if (name == "k") return given.k;
  if (name == "r") return given.r;
  if (name == "s") return given.s;
  return {};
}

}  // namespace

Stage stage_of_keywords(const nb::dict& keywords) {
  check_names(keywords);
  return parse_stage(text_of_keywords(keywords));
}

nb::dict keywords_of(nb::handle stage) {
  GivenAxes given;
  const Stage parts = parse_stage_parts(text_of(stage), given);
  const nb::object found = nb::cast(parts), plain = nb::cast(Stage());
  nb::dict keywords;
  for (const char* const name : keyword_names) {
    const nb::object value = found.attr(name);
    if (given_by_text(given, name).value_or(!value.equal(plain.attr(name)))) keywords[name] = value;
  }
  return keywords;
}

Stage replaced(const Stage& stage, const nb::dict& changes) {
  check_names(changes);
  const nb::object now = nb::cast(stage);
  nb::dict keywords;
  for (const char* const name : keyword_names) keywords[name] = now.attr(name);
  keywords.update(changes);
  return parse_stage(text_of_keywords(keywords));
}

}  // namespace convoy::python
