// Commands and options as the subcommands' files declare them. CLI11 parses them; command.cpp alone
// includes it, because each file that does takes a quarter of a minute to compile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/stage.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace convoy::cli {

/// What an option's value must be: said in its help, and with what was given when it is not.
struct Check {
  std::string limits;  // "1 or more"; empty: not worth a word in the help
  std::function<std::string(std::string& text)> complaint;  // empty where the text is right
};

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* type_name(const std::string& name);
  Option* required();
  Option* check(const Check& check);
  /// The value that the variable has now is the default that the help prints.
  Option* capture_default_str();
  Option* excludes(const std::string& name);
  Option* excludes(const Option* other);

 private:
  CLI::Option* option_;
};

/// A command with options; its variables must outlive the parsing.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command* add_subcommand(const std::string& name, const std::string& description);
  Option* add_flag(const std::string& name, bool& variable, const std::string& description);
  /// A name without dashes is a positional argument. A vector's option may be repeated.
  Option* add_option(const std::string& name, std::string& variable, const std::string& text);
  Option* add_option(const std::string& name, std::vector<std::string>& variable,
                     const std::string& text);
  Option* add_option(const std::string& name, int& variable, const std::string& text);
  Option* add_option(const std::string& name, Index& variable, const std::string& text);
  Option* add_option(const std::string& name, std::uint64_t& variable, const std::string& text);
  Option* add_option(const std::string& name, double& variable, const std::string& text);
  /// Calls `set` with the text, which it has passed `check`.
  Option* add_option(const std::string& name, const std::function<void(const std::string&)>& set,
                     const Check& check, const std::string& text);
  /// Printed behind the help.
  void footer(const std::string& text);
  /// Run when the command was chosen and its options are right.
  void callback(std::function<void()> run);

 private:
  Option* keep(CLI::Option* option);

  CLI::App* app_;
  std::deque<Option> options_;
  std::deque<Command> commands_;
};

/// The whole program's command line.
class Program {
 public:
  Program(const std::string& description, const std::string& name, const std::string& version);
  ~Program();
  Command& root() { return *root_; }

  /// Parses the words behind the program's name, prints help, version or what is wrong with the
  /// arguments, and calls the chosen subcommand's callback, whose exceptions pass. Whether the exit
  /// code is that of the subcommand; else it is in `exit_code`.
  bool parse(std::vector<std::string> words, int& exit_code);

 private:
  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<Command> root_;
};

}  // namespace convoy::cli
