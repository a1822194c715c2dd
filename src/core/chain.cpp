#include "core/chain.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"
#include "core/stage_text.hpp"

namespace convoy {
namespace {

constexpr std::string_view between = " > ", mean_word = "mean", constants_word = "constants",
                           spikes_word = "spikes";

constexpr Index most_images = (Index{1} << 31) - 1;

std::string shape_text(Index h, Index w, Index c) {
  return fmt::format("{}x{}x{}", h, w, c);
}

// Why `next` can't read what `stage` writes; empty: it can.
std::string mismatch(const Stage& stage, const Stage& next, bool gpu) {
  if (next.n != stage.n)
    return fmt::format("n is {} in the stage before and {} here, expected the same n", stage.n,
                       next.n);
  if (next.dtype != stage.output_dtype(gpu))
    return fmt::format("the input type is {}, expected {}, the output type of the stage before",
                       to_text(next.dtype), to_text(stage.output_dtype(gpu)));
  if (next.layout != stage.layout)
    return "the layout differs from that of the stage before, expected one layout for all stages";
  const Shapes shapes = shapes_of(stage);
  const bool as_it_is = next.h == shapes.out_h && next.w == shapes.out_w && next.c == stage.k;
  const bool flattened = next.h == 1 && next.w == 1 && next.r == 1 && next.s == 1 &&
                         next.c == shapes.out_h * shapes.out_w * stage.k;
  if (as_it_is || flattened) return {};
  return fmt::format(
      "the input is {} (h, w, c), expected {} or 1x1x{}", shape_text(next.h, next.w, next.c),
      shape_text(shapes.out_h, shapes.out_w, stage.k), shapes.out_h * shapes.out_w * stage.k);
}

}  // namespace

bool Chain::exact() const {
  return std::any_of(stages.begin(), stages.end(), [](const Stage& s) { return s.exact(); });
}

Index Chain::steps() const {
  Index steps = x_steps;
  for (const Stage& stage : stages)
    if (stage.act.is_neuron()) steps = std::max(steps, stage.t);
  return steps;
}

bool is_one_stage(const Chain& chain) {
  // Names every fact: one more does not compile until it counts here, too.
  const auto& [constants, binary, x_steps, mean] = static_cast<const ChainFacts&>(chain);
  return chain.size() == 1 && !constants && !binary && x_steps == 1 && !mean;
}

std::vector<std::string> problems(const Chain& chain, bool gpu) {
  if (chain.size() == 0) return {"no stage"};
  // To a stage without a neuron the steps are further images.
  const Size images = Size(chain.front().n) * chain.x_steps;
  if (chain.x_steps > 1 && !images.fits(most_images))
    return {fmt::format("{} images in {} steps, expected at most {} in all", chain.front().n,
                        chain.x_steps, most_images)};
  std::vector<std::string> all;
  const auto add = [&](std::size_t i, const std::string& what) {
    all.push_back(chain.size() == 1 ? what : fmt::format("stage {}: {}", i + 1, what));
  };
  for (std::size_t i = 0; i < chain.size(); ++i)
    for (const std::string& problem : problems(chain[i])) add(i, problem);
  if (!all.empty()) return all;
  const Index steps = chain.steps();
  bool spikes = chain.x_steps > 1 || chain.binary;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const Stage& stage = chain[i];
    if (i > 0)
      if (const std::string why = mismatch(chain[i - 1], stage, gpu); !why.empty()) add(i, why);
    if (stage.act.is_neuron()) {
      if (stage.t != steps)
        add(i, fmt::format("t is {}, expected {} as elsewhere", stage.t, steps));
      if (spikes && i > 0 && stage.hold && steps > 1)
        add(i, "found hold, expected none: the input changes from step to step");
      spikes = true;
    }
    if (chain.size() > 1 && stage.keep.any())
      add(i, "found keep(...), expected none: a chain has one output");
  }
  if (chain.mean && (!spikes || chain.back().act.is_neuron()))
    all.emplace_back("mean: expected a neuron, and after it a last stage without one");
  return all;
}

void check(const Chain& chain, bool gpu) {
  if (chain.size() == 1 && !chain.mean) {
    shapes_of(chain.front());  // throws with every problem
    return;
  }
  const std::vector<std::string> all = problems(chain, gpu);
  if (!all.empty())
    throw Error(fmt::format("illegal chain {}: {}", to_text(chain), fmt::join(all, "; ")));
}

std::string to_text(const Chain& chain) {
  std::string text;
  if (chain.constants) text.append(constants_word).append(between);
  if (chain.binary) {
    text.append(spikes_word);
    if (chain.x_steps > 1) text += fmt::format(" t{}", chain.x_steps);
    text.append(between);
  }
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (i > 0) text.append(between);
    text += to_text(chain[i]);
  }
  if (chain.mean) text.append(between).append(mean_word);
  return text;
}

namespace {

// What stands behind "spikes": nothing, or " t<T>".
void parse_spikes(std::string_view rest, std::string_view text, OwnedChain& chain) {
  chain.binary = true;
  if (rest.empty()) return;
  Index steps = 0;
  const std::string_view digits = rest.substr(std::min<std::size_t>(2, rest.size()));
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), steps);
  if (rest.substr(0, 2) != " t" || failure != std::errc() || end != digits.data() + digits.size() ||
      steps < 1)
    throw Error(fmt::format("\"{}\": expected \"spikes\" or \"spikes t<STEPS>\"", printable(text)));
  chain.x_steps = steps;
}

}  // namespace

OwnedChain parse_chain(std::string_view text, bool gpu) {
  OwnedChain chain;
  for (std::string_view rest = text;;) {
    const std::size_t end = rest.find('>');
    const std::string_view part = trim(rest.substr(0, end));
    const bool is_prefix =
        part == constants_word || part.substr(0, spikes_word.size()) == spikes_word;
    if (part.empty() && text.find('>') != std::string_view::npos)
      throw Error(fmt::format(
          "\"{}\": found \">\" without a stage before or after it, expected STAGE > STAGE",
          printable(text)));
    if (chain.mean)
      throw Error(fmt::format("\"{}\": found mean before another stage, expected mean at the end",
                              printable(text)));
    if (is_prefix && !chain.stages.empty())
      throw Error(fmt::format("\"{}\": found {} after a stage, expected it at the start",
                              printable(text), printable(part)));
    if (part == mean_word)
      chain.mean = true;
    else if (part == constants_word)
      chain.constants = true;
    else if (part.substr(0, spikes_word.size()) == spikes_word)
      parse_spikes(part.substr(spikes_word.size()), text, chain);
    else
      chain.stages.push_back(parse_stage(part));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (const auto wrong = problems(chain, gpu); !wrong.empty())
    throw Error(fmt::format("\"{}\": {}", printable(text), wrong.front()));
  return chain;
}

std::vector<Stage> stages_alone(const Chain& chain) {
  std::vector<Stage> stages;
  Index steps = chain.x_steps;
  for (Stage stage : chain.stages) {
    if (stage.act.is_neuron())
      steps = stage.t;
    else
      stage.n *= steps;
    stages.push_back(stage);
  }
  return stages;
}

OwnedChain with_images(const Chain& chain, Index n) {
  OwnedChain other(chain);
  for (Stage& stage : other.stages) stage.n = n;
  return other;
}

}  // namespace convoy
