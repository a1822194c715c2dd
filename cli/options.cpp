#include "options.hpp"

#include <fmt/core.h>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "core/printable.hpp"

namespace convoy::cli {
namespace {

template <class Number>
CLI::Validator within(Number least, Number most, std::string_view kind, const std::string& limits) {
  const auto check = [=, kind = std::string(kind)](const std::string& text) {
    Number value{};
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most)
      return std::string();
    return fmt::format("\"{}\": expected a {}, {}", printable(text, 80), kind, limits);
  };
  return {check, limits};
}

// CLI11 appends what the checks say of themselves to the type's name.
std::pair<std::string, std::string> type_and_limits(const CLI::Option& option) {
  const std::string all = option.get_type_name();
  const std::size_t colon = all.find(':');
  if (colon == std::string::npos) return {all, {}};
  return {all.substr(0, colon), all.substr(colon + 1)};
}

}  // namespace

CLI::Validator at_least(Index least) {
  return within(least, std::numeric_limits<Index>::max(), "whole number",
                fmt::format("{} or more", least));
}
CLI::Validator between(Index least, Index most) {
  return within(least, most, "whole number", fmt::format("{} to {}", least, most));
}
CLI::Validator between(double least, double most) {
  return within(least, most, "number", fmt::format("{} to {}", least, most));
}

CLI::Validator not_empty() {
  return {[](const std::string& text) {
            return text.empty() ? std::string("\"\": expected a name") : std::string();
          },
          ""};
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda or cuda:<number>")
      ->type_name("DEVICE")
      ->capture_default_str();
}
void add_threads(CLI::App& command, int& threads) {
  command
      .add_option("--threads", threads, "CPU threads; without it CONVOY_NUM_THREADS or every core")
      ->type_name("N")
      ->check(between(Index{1}, 4096));
}
void add_strict(CLI::App& command, bool& strict) {
  command.add_flag("--strict", strict, "Only arithmetics that are exact on small integers");
}
void add_no_tuning(CLI::App& command, bool& no_tuning) {
  command.add_flag("--no-tuning", no_tuning, "Ignore the tuning cache");
}
void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON");
}

void StageList::add_to(CLI::App& command) {
  auto* shapes = command.add_option("--shapes", file, "A shape list, one stage a line")
                     ->type_name("FILE")
                     ->check(not_empty());
  command.add_option("--stage", texts, "A stage, as text (docs/stage.md); may be repeated")
      ->type_name("STAGE")
      ->excludes(shapes);
}
std::vector<Stage> StageList::read() const {
  if (!file.empty()) return read_shape_list(file);
  std::vector<Stage> stages;
  for (const std::string& text : texts) stages.push_back(parse_stage(text));
  return stages;
}
std::vector<Stage> StageList::read_some(std::string_view command) const {
  if (file.empty() && texts.empty())
    throw Error(
        fmt::format("{}: give either --stage STAGE or --shapes FILE, for example "
                    "--stage n4h32c64k128r3pad1+bias+relu+max2",
                    command));
  return read();
}

void StageChanges::add_to(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--dtype",
          [this](const std::string& text) {
            for (const DType type : all_types)
              if (to_text(type) == text && facts_of(type).input) dtype = type;
            if (!dtype)
              throw CLI::ValidationError(
                  "--dtype",
                  fmt::format("\"{}\": expected f32, f16, bf16 or u8", printable(text, 80)));
          },
          "Change the type of every stage: f32, f16, bf16 or u8")
      ->type_name("TYPE");
  command.add_option("--images", images, "Change n of every stage")
      ->type_name("N")
      ->check(at_least(1));
  command.add_flag("--without-pool", without_pool, "Leave every stage's pool out");
}
Stage StageChanges::apply(Stage stage) const {
  if (dtype) stage.dtype = *dtype;
  if (images > 0) stage.n = images;
  if (without_pool) stage.pool.reset();
  if (without_pool) stage.keep.idx = false;
  if (strict) stage.strict = true;
  return stage;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return {};  // a flag
  const bool many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
  return " " + type_and_limits(*option).first + (many ? " ..." : "");
}
std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string limits = type_and_limits(*option).second;
  if (const std::string value = option->get_default_str(); !value.empty())
    limits += (limits.empty() ? "default " : "; default ") + value;
  return option->get_description() + (limits.empty() ? "" : " (" + limits + ")");
}

}  // namespace convoy::cli
