// Options that several subcommands share: one name, one check, one text in the help.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "convoy/stage.hpp"
#include "core/chain.hpp"

namespace convoy::cli {

Check at_least(Index least);  // whole numbers
Check between(Index least, Index most);
Check between(double least, double most);
Check not_empty();

/// `more`: which devices the subcommand takes besides, for its help.
void add_device(Command& command, std::string& device, const std::string& more = "");
void add_threads(Command& command, int& threads);
void add_strict(Command& command, bool& strict);
void add_no_tuning(Command& command, bool& no_tuning);
void add_json(Command& command, bool& json);
/// --seconds and --rounds of what is timed in rounds; `each`: what the seconds are of.
void add_rounds(Command& command, double& seconds, int& rounds, const char* each);
/// The model folder, which comes first.
void add_model(Command& command, std::string& model);

/// What an option gave; without it the environment's variable; without that a place in the source
/// tree that the program was built from.
std::string in_source_tree(const std::string& given, const char* variable, const char* relative);

/// --stage, which may be repeated, or --shapes.
struct StageList {
  std::vector<std::string> texts;
  std::string file;

  void add_to(Command& command);
  /// Stages and chains of them; none when neither was given. Throws Error for what can't be read.
  std::vector<OwnedChain> read_chains(bool gpu) const;
  /// The same; throws Error too when neither was given.
  std::vector<OwnedChain> read_some_chains(std::string_view command, bool gpu) const;

 private:
  void expect_some(std::string_view command) const;
};

/// Options that change every stage of a list, so that one list serves several types and sizes.
struct StageChanges {
  std::optional<DType> dtype;
  Index images = 0;
  bool without_pool = false, strict = false;

  void add_to(Command& command);
  Stage apply(Stage stage) const;
  OwnedChain apply(OwnedChain chain) const;  // to each of its stages
};

}  // namespace convoy::cli
