// Options that several subcommands share: one name, one check, one text in the help.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::cli {

/// Checks of an option's value, told in its help and, with what was given, when they fail.
CLI::Validator at_least(Index least);  // whole numbers
CLI::Validator between(Index least, Index most);
CLI::Validator between(double least, double most);
CLI::Validator not_empty();

void add_device(CLI::App& command, std::string& device);
void add_threads(CLI::App& command, int& threads);
void add_strict(CLI::App& command, bool& strict);
void add_no_tuning(CLI::App& command, bool& no_tuning);
void add_json(CLI::App& command, bool& json);

/// --stage, which may be repeated, or --shapes.
struct StageList {
  std::vector<std::string> texts;
  std::string file;

  void add_to(CLI::App& command);
  /// None when neither was given. Throws Error for a stage or a list that can't be read.
  std::vector<Stage> read() const;
  /// The same; throws Error too when neither was given.
  std::vector<Stage> read_some(std::string_view command) const;
};

/// Options that change every stage of a list, so that one list serves several types and sizes.
struct StageChanges {
  std::optional<DType> dtype;
  Index images = 0;
  bool without_pool = false, strict = false;

  void add_to(CLI::App& command);
  Stage apply(Stage stage) const;
};

/// Help with an option's limits and default behind its description.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace convoy::cli
