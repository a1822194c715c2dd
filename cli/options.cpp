#include "options.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "core/printable.hpp"
#include "core/shape_list.hpp"
#include "verify/source_path.hpp"

namespace convoy::cli {
namespace {

// The whole text as a number; decimal, as C++ reads it.
template <class Number>
bool parse(const std::string& text, Number& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end && begin != end;
}

template <class Number>
Check within(Number least, Number most, std::string_view kind, const std::string& limits) {
  const auto complaint = [=, kind = std::string(kind)](const std::string& text) {
    Number value{};
    if (parse(text, value) && value >= least && value <= most) return std::string();
    return fmt::format("\"{}\": expected a {}, {}", printable(text, 80), kind, limits);
  };
  return {limits, complaint};
}

}  // namespace

Check at_least(Index least) {
  return within(least, std::numeric_limits<Index>::max(), "whole number",
                fmt::format("{} or more", least));
}
Check between(Index least, Index most) {
  return within(least, most, "whole number", fmt::format("{} to {}", least, most));
}
Check between(double least, double most) {
  return within(least, most, "number", fmt::format("{} to {}", least, most));
}

Check not_empty() {
  return {"", [](const std::string& text) {
            return text.empty() ? std::string("\"\": expected a name") : std::string();
          }};
}

void add_device(Command& command, std::string& device, const std::string& more) {
  command
      .add_option("--device", device,
                  "Device to run on: cpu, cuda (the first GPU) or cuda:<number>" + more)
      ->type_name("DEVICE")
      ->capture_default_str();
}
void add_rounds(Command& command, double& seconds, int& rounds, const char* each) {
  command.add_option("--seconds", seconds, each)
      ->type_name("S")
      ->capture_default_str()
      ->check(between(0.001, 10.0));
  command
      .add_option("--rounds", rounds,
                  "Maximum number of rounds; it stops earlier once every spread is below 2 %")
      ->type_name("N")
      ->capture_default_str()
      ->check(between(Index{1}, 1000));
}
void add_threads(Command& command, int& threads) {
  command
      .add_option("--threads", threads,
                  "CPU threads; by default CONVOY_NUM_THREADS, or else all usable cores")
      ->type_name("N")
      ->check(between(Index{1}, 4096));
}
void add_strict(Command& command, bool& strict) {
  command.add_flag("--strict", strict,
                   "Add +strict: use only arithmetics that are exact on small integers");
}
void add_no_tuning(Command& command, bool& no_tuning) {
  command.add_flag("--no-tuning", no_tuning, "Ignore the results that convoy tune stored");
}
void add_json(Command& command, bool& json) {
  command.add_flag("--json", json, "Print the result as JSON instead of text");
}

void add_model(Command& command, std::string& model) {
  command.add_option("model", model, "Model folder, with network.txt and the weights")
      ->type_name("FOLDER")
      ->required()
      ->check(not_empty());
}

std::string in_source_tree(const std::string& given, const char* variable, const char* relative) {
  if (!given.empty()) return given;
  if (const char* value = std::getenv(variable)) return value;
  return source_path(relative);
}

void StageList::add_to(Command& command) {
  auto* shapes =
      command
          .add_option("--shapes", file, "A file with one stage, or one chain of stages, per line")
          ->type_name("FILE")
          ->check(not_empty());
  command
      .add_option(
          "--stage", texts,
          "A stage as text (docs/use/stages.md), or a chain: STAGE > STAGE; may be repeated")
      ->type_name("STAGE")
      ->excludes(shapes);
}
std::vector<OwnedChain> StageList::read_chains(bool gpu) const {
  if (!file.empty()) return read_chain_list(file, gpu);
  std::vector<OwnedChain> chains;
  chains.reserve(texts.size());
  for (const std::string& text : texts) chains.push_back(parse_chain(text, gpu));
  return chains;
}
std::vector<OwnedChain> StageList::read_some_chains(std::string_view command, bool gpu) const {
  expect_some(command);
  return read_chains(gpu);
}
void StageList::expect_some(std::string_view command) const {
  if (file.empty() && texts.empty())
    throw Error(
        fmt::format("{}: give either --stage STAGE or --shapes FILE, for example "
                    "--stage n4h32c64k128r3pad1+bias+relu+max2",
                    command));
}

void StageChanges::add_to(Command& command) {
  const auto type_of = [](const std::string& text) {
    std::optional<DType> found;
    for (const DType type : all_types)
      if (to_text(type) == text && facts_of(type).input) found = type;
    return found;
  };
  const Check one_of_them{"", [=](const std::string& text) {
                            return type_of(text)
                                       ? std::string()
                                       : fmt::format("\"{}\": expected f32, f16, bf16 or u8",
                                                     printable(text, 80));
                          }};
  command
      .add_option(
          "--dtype", [this, type_of](const std::string& text) { dtype = type_of(text); },
          one_of_them, "Change the input type of every stage to f32, f16, bf16 or u8")
      ->type_name("TYPE");
  command.add_option("--images", images, "Change the number of images of every stage")
      ->type_name("N")
      ->check(at_least(1));
  command.add_flag("--without-pool", without_pool, "Remove the pool from every stage");
}
Stage StageChanges::apply(Stage stage) const {
  if (dtype) stage.dtype = *dtype;
  if (images > 0) stage.n = images;
  if (without_pool) stage.pool.reset();
  if (without_pool) stage.keep.idx = false;
  if (strict) stage.strict = true;
  return stage;
}

OwnedChain StageChanges::apply(OwnedChain chain) const {
  for (Stage& stage : chain.stages) stage = apply(stage);
  return chain;
}

}  // namespace convoy::cli
