#include "command.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "console.hpp"
#include "core/printable.hpp"

namespace convoy::cli {
namespace {

// CLI11 appends what the checks say of themselves to the type's name.
std::pair<std::string, std::string> type_and_limits(const CLI::Option& option) {
  const std::string all = option.get_type_name();
  const std::size_t colon = all.find(':');
  if (colon == std::string::npos) return {all, {}};
  return {all.substr(0, colon), all.substr(colon + 1)};
}

// Lines of `columns` at most, broken between words; 0: one line.
std::string broken(std::string text, std::size_t columns) {
  std::size_t begin = 0;
  while (columns > 0 && text.size() - begin > columns) {
    std::size_t space = text.rfind(' ', begin + columns);
    if (space == std::string::npos || space <= begin) space = text.find(' ', begin + columns);
    if (space == std::string::npos) break;
    text[space] = '\n';
    begin = space + 1;
  }
  return text;
}

// Help with an option's limits and default behind its description, as wide as the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return {};  // a flag
    const bool many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return " " + type_and_limits(*option).first + (many ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string limits = type_and_limits(*option).second;
    if (const std::string value = option->get_default_str(); !value.empty())
      limits += (limits.empty() ? "default " : "; default ") + value;
    if (option->get_required() && !option->get_positional())
      limits += limits.empty() ? "required" : "; required";
    return fitted(option->get_description() + (limits.empty() ? "" : " (" + limits + ")"));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream text;
    CLI::detail::format_help(text, command->get_name(), fitted(command->get_description()),
                             column_width_);
    return text.str();
  }

 private:
  // On a narrow terminal nothing is gained by columns of a few words.
  std::string fitted(const std::string& description) const {
    constexpr std::size_t least = 20;
    const std::size_t columns = terminal_columns();
    return columns < column_width_ + least ? description
                                           : broken(description, columns - column_width_);
  }
};

// What CLI11 says in its own terms, in ours.
std::string told(const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::string words;
    for (const std::string& word : command.remaining())
      words += (words.empty() ? "\"" : ", \"") + printable(word, 80) + "\"";
    return words + ": not an option or an argument of this subcommand";
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string name = text.substr(0, text.find(':'));
    if (const CLI::Option* option = command.get_option_no_throw(name); option != nullptr) {
      const auto [type, limits] = type_and_limits(*option);
      return name + ": no value given, expected " + type + (limits.empty() ? "" : ", " + limits);
    }
  }
  return printable(text, 500);
}

// One line, as of every other error, and whose help tells more.
void print_usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const auto unknown = app.remaining();
  if (!chosen.empty()) {
    print_error("convoy {0}: {1}. `convoy {0} --help` lists the options.\n",
                chosen.front()->get_name(), told(*chosen.front(), error));
  } else if (!unknown.empty()) {
    std::string names;
    for (const CLI::App* one : app.get_subcommands({})) names += " " + one->get_name();
    print_error("convoy: \"{}\": expected a subcommand:{}. `convoy --help` describes them.\n",
                printable(unknown.front()), names);
  } else {
    print_error("{}", app.help());
  }
}

CLI::Validator validator(const Check& check) {
  return {check.complaint, check.limits};
}

}  // namespace

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}
Option* Option::required() {
  option_->required();
  return this;
}
Option* Option::check(const Check& check) {
  option_->check(validator(check));
  return this;
}
Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}
Option* Option::excludes(const std::string& name) {
  option_->excludes(name);
  return this;
}
Option* Option::excludes(const Option* other) {
  option_->excludes(other->option_);
  return this;
}

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  return &commands_.emplace_back(app_->add_subcommand(name, description));
}
Option* Command::keep(CLI::Option* option) {
  return &options_.emplace_back(option);
}
Option* Command::add_flag(const std::string& name, bool& variable, const std::string& description) {
  return keep(app_->add_flag(name, variable, description));
}
Option* Command::add_option(const std::string& name, std::string& variable,
                            const std::string& text) {
  return keep(app_->add_option(name, variable, text));
}
Option* Command::add_option(const std::string& name, std::vector<std::string>& variable,
                            const std::string& text) {
  return keep(app_->add_option(name, variable, text));
}
Option* Command::add_option(const std::string& name, int& variable, const std::string& text) {
  return keep(app_->add_option(name, variable, text));
}
Option* Command::add_option(const std::string& name, Index& variable, const std::string& text) {
  return keep(app_->add_option(name, variable, text));
}
Option* Command::add_option(const std::string& name, std::uint64_t& variable,
                            const std::string& text) {
  return keep(app_->add_option(name, variable, text));
}
Option* Command::add_option(const std::string& name, double& variable, const std::string& text) {
  return keep(app_->add_option(name, variable, text));
}
Option* Command::add_option(const std::string& name,
                            const std::function<void(const std::string&)>& set, const Check& check,
                            const std::string& text) {
  return keep(app_->add_option_function<std::string>(name, set, text)->check(validator(check)));
}
void Command::footer(const std::string& text) {
  app_->footer(text);
}
void Command::callback(std::function<void()> run) {
  app_->callback(std::move(run));
}

Program::Program(const std::string& description, const std::string& name,
                 const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)),
      root_(std::make_unique<Command>(app_.get())) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->formatter(std::make_shared<HelpFormatter>());
}
Program::~Program() = default;

bool Program::parse(std::vector<std::string> words, int& exit_code) {
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app_->parse(std::move(words));
    return true;
  } catch (const CLI::Success& success) {  // --help, --version
    exit_code = app_->exit(success);
  } catch (const CLI::ParseError& error) {
    print_usage_error(*app_, error);
    exit_code = 2;
  }
  return false;
}

}  // namespace convoy::cli
