// network.txt: one line a layer, in the stage grammar.
#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "convoy/error.hpp"
#include "convoy/network.hpp"
#include "core/failure.hpp"
#include "core/printable.hpp"
#include "core/stage_text.hpp"
#include "network/flow.hpp"

namespace convoy {
namespace {

constexpr std::size_t max_text = 1 << 20;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  for (std::size_t at = 0; at < line.size();) {
    while (at < line.size() && space(line[at])) ++at;
    std::size_t end = at;
    while (end < line.size() && !space(line[end])) ++end;
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

/// What one line may go wrong with: every error names the file and the line.
class Line {
 public:
  Line(const std::string& file, int number) : file_(file), number_(number) {}
  [[nodiscard]] Error error(const std::string& what) const {
    return Error(fmt::format("{}:{}: {}", file_, number_, what));
  }

  /// What `check` returns; what it throws is said of this line.
  template <class Check>
  auto of(const Check& check) const {
    try {
      return check();
    } catch (const Error& thrown) {
      throw error(thrown.what());
    }
  }

  /// The numbers in "mean(0.5,0.4)".
  std::vector<float> numbers(std::string_view word, std::string_view key) const {
    std::vector<float> values;
    std::string_view rest = word.substr(key.size() + 1);
    if (rest.empty() || rest.back() != ')') throw bad_numbers(word, key);
    rest.remove_suffix(1);
    while (true) {
      const std::string_view item = rest.substr(0, rest.find(','));
      float value = 0;
      const auto [stop, failure] = std::from_chars(item.data(), item.data() + item.size(), value);
      if (failure != std::errc() || stop != item.data() + item.size() || !std::isfinite(value))
        throw bad_numbers(word, key);
      values.push_back(value);
      if (item.size() == rest.size()) return values;
      rest.remove_prefix(item.size() + 1);
    }
  }

 private:
  [[nodiscard]] Error bad_numbers(std::string_view word, std::string_view key) const {
    return error(
        fmt::format("\"{}\": expected {}(NUMBER) or {}(NUMBER,NUMBER,...), one per channel",
                    printable(word), key, key));
  }
  const std::string& file_;
  int number_;
};

Stage parts(const Line& line, std::string_view text, GivenAxes& given) {
  return line.of([&] { return parse_stage_parts(text, given); });
}

network::Flow parse_input(const Line& line, const std::vector<std::string_view>& words,
                          NetworkText& network) {
  if (network.h != 0) throw line.error("a second \"input\". Expected one, as the first line.");
  if (words.size() < 2)
    throw line.error(
        "found only \"input\", expected for example \"input u8:h28w28c1 mean(0.5) std(0.5)\"");
  GivenAxes given;
  const Stage stage = parts(line, words[1], given);
  if (!given.h || !given.c || given.n || given.k || given.r)
    throw line.error(
        fmt::format("\"{}\": expected only type, height, width and channels: u8:h28w28c1",
                    printable(words[1])));
  Stage plain;
  plain.dtype = stage.dtype, plain.h = stage.h, plain.w = stage.w, plain.c = stage.c;
  if (stage != plain || stage.dtype == DType::i32)
    throw line.error(
        fmt::format("\"{}\": expected u8, f32, f16 or bf16 and sizes, no riders: u8:h28w28c1",
                    printable(words[1])));
  network.dtype = stage.dtype, network.h = stage.h, network.w = stage.w, network.c = stage.c;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const bool mean = words[i].starts_with("mean(");
    if (!mean && !words[i].starts_with("std("))
      throw line.error(fmt::format("\"{}\": expected mean(...) or std(...)", printable(words[i])));
    std::vector<float>& numbers = mean ? network.mean : network.std;
    if (!numbers.empty())
      throw line.error(
          fmt::format("\"{}\": found a second {}. Expected one, with one number per channel.",
                      printable(words[i]), mean ? "mean" : "std"));
    numbers = line.numbers(words[i], mean ? "mean" : "std");
  }
  return line.of([&] { return network::input_of(network); });
}

void parse_steps(const Line& line, const std::vector<std::string_view>& words, NetworkText& network,
                 bool given) {
  if (given) throw line.error("a second \"steps\". Expected one, before the first layer.");
  if (!network.layers.empty())
    throw line.error("found \"steps\" after a layer. Move it before the first layer.");
  Index value = 0;
  if (words.size() == 2) {
    const auto [stop, failure] =
        std::from_chars(words[1].data(), words[1].data() + words[1].size(), value);
    if (failure == std::errc() && stop == words[1].data() + words[1].size() && value >= 1 &&
        value <= network::most_steps) {
      network.steps = value;
      return;
    }
  }
  throw line.error(fmt::format("expected \"steps N\" with N from 1 to {}", network::most_steps));
}

/// What stands in the parentheses of a word such as "from(a,b)"; empty where it is another.
std::string_view inside(std::string_view word, std::string_view begin) {
  if (!word.starts_with(begin) || word.back() != ')') return {};
  return word.substr(begin.size(), word.size() - begin.size() - 1);
}

std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  while (true) {
    const std::string_view name = list.substr(0, list.find(','));
    names.emplace_back(name);
    if (name.size() == list.size()) return names;
    list.remove_prefix(name.size() + 1);
  }
}

NetworkLayer parse_layer(const Line& line, const std::vector<std::string_view>& words,
                         const network::Flow& flow, int number) {
  NetworkLayer layer;
  layer.name = std::string(words[0]);
  layer.line = number;
  line.of([&] { network::check_name(layer.name); });
  if (words.size() < 2)
    throw line.error(
        fmt::format("\"{}\": unknown layer, or a name without a stage. Expected flatten, or a "
                    "name and a stage such as \"conv1 k8r5+bias+relu+max2\".",
                    printable(words[0])));
  GivenAxes given;
  layer.stage = parts(line, words[1], given);
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string_view batchnorm = inside(words[i], "batchnorm("),
                           from = inside(words[i], "from(");
    if (!batchnorm.empty() && layer.batchnorm.empty())
      layer.batchnorm = std::string(batchnorm);
    else if (!from.empty() && layer.from.empty())
      layer.from = names_of(from);
    else
      throw line.error(
          fmt::format("\"{}\": expected the end of the line, or batchnorm(NAME) and "
                      "from(NAME,...), each at most once",
                      printable(words[i])));
  }
  if (given.n || given.h || given.w || given.c || given.dtype)
    throw line.error(
        fmt::format("\"{}\": n, h, w, c and the type follow from the layer before: leave them out",
                    printable(words[1])));
  if (!given.k)
    throw line.error(
        fmt::format("\"{}\": k, the number of outputs, is missing", printable(words[1])));
  const bool flat = layer.from.empty() && flow.last().flat;
  if (flat && (given.r || given.s))
    throw line.error(
        fmt::format("\"{}\": a linear layer (after flatten) has no r and s: leave them out",
                    printable(words[1])));
  if (layer.from.empty() && !flat && !given.r)
    throw line.error(fmt::format(
        "\"{}\": r, the filter's height, is missing. (A linear layer needs \"flatten\" before it.)",
        printable(words[1])));
  if (layer.stage.t != 1 || layer.stage.hold)
    throw line.error(
        "found t or hold, expected neither: they follow from \"steps\". Leave them out");
  return layer;
}

}  // namespace

NetworkText parse_network(std::string_view text, const std::string& file) try {
  const std::string name = printable_path(file);
  text = without_mark(text);
  if (text.size() > max_text)
    throw Error(fmt::format(
        "{}: {} bytes, expected a network description of at most {}. Is it the right file?", name,
        text.size(), max_text));
  NetworkText network;
  network::Flow flow;
  int number = 0;
  bool steps_given = false;
  while (!text.empty()) {
    std::string_view content = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(content.size() + 1, text.size()));
    const Line line(name, ++number);
    if (content.find('\0') != std::string_view::npos)
      throw line.error("found a NUL byte, expected text. Is it a text file?");
    content = content.substr(0, content.find('#'));
    const auto words = words_of(content);
    if (words.empty()) continue;
    if (words[0] == "input") {
      flow = parse_input(line, words, network);
      continue;
    }
    if (network.h == 0)
      throw line.error(
          fmt::format("\"{}\" before the input. Expected first, for example, \"input u8:h28w28c1 "
                      "mean(0.5) std(0.5)\".",
                      printable(words[0])));
    if (words[0] == "steps") {
      parse_steps(line, words, network, steps_given);
      steps_given = true;
    } else if (words[0] == "flatten") {
      if (words.size() > 1) throw line.error("found more words after \"flatten\", expected none");
      NetworkLayer layer;
      layer.flatten = true, layer.line = number;
      line.of([&] { network::add_layer(network, std::move(layer), flow); });
    } else {
      NetworkLayer layer = parse_layer(line, words, flow, number);
      line.of([&] { network::add_layer(network, std::move(layer), flow); });
    }
  }
  if (network.h == 0) throw Error(name + ": empty, expected an \"input\" line and layers.");
  try {
    network::check_end(network, flow);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}. Was the file cut short?", name, error.what()));
  }
  return network;
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
