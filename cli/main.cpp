#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <system_error>

#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "core/printable.hpp"
#include "options.hpp"

namespace {

using convoy::cli::print_error;

// What was printed may still be on its way. Lost output is no success, though the work was done.
int after_output(int exit_code) {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  print_error("convoy: standard output: writing failed: {}. Is it closed, or is the disk full?\n",
              std::strerror(errno));
  return 2;
}

// One line, as of every other error, and whose help tells more.
void print_usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const auto unknown = app.remaining();
  if (!chosen.empty()) {
    print_error("convoy {0}: {1}. `convoy {0} --help` tells more.\n", chosen.front()->get_name(),
                convoy::printable(error.what(), 500));
  } else if (!unknown.empty()) {
    std::string names;
    for (const CLI::App* one : app.get_subcommands({})) names += " " + one->get_name();
    print_error(
        "convoy: \"{}\": expected a subcommand. There are:{}. `convoy --help` tells more.\n",
        convoy::printable(unknown.front()), names);
  } else {
    print_error("{}", app.help());
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace convoy::cli;
  prepare_process();
  CLI::App app{"Convolution and all that follows it, as one kernel.", "convoy"};
  app.set_version_flag("--version", convoy::version());
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      "Examples: convoy run models/fashion-scnn\n"
      "          convoy explain n4h32c64k128r3pad1+bias+relu+max2\n"
      "Each subcommand has a help of its own: convoy bench --help");
  int exit_code = 0;
  add_run(app, exit_code);
  add_bench(app, exit_code);
  add_verify(app, exit_code);
  add_explain(app, exit_code);
  add_tune(app, exit_code);
  add_devices(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return after_output(app.exit(success));
  } catch (const CLI::ParseError& error) {
    print_usage_error(app, error);
    return 2;
  } catch (const convoy::Error& error) {
    print_error("convoy: {}\n", error.what());
    return 2;
  } catch (const std::system_error& error) {  // output that can't be written, threads not to be had
    print_error("convoy: {}\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    print_error("convoy: no memory is left. Use a smaller n or smaller images.\n");
    return 2;
  } catch (const std::exception& error) {
    print_error("convoy: {}. Please report this with the command that you ran.\n",
                convoy::printable_lines(error.what()));
    return 2;
  }
  return after_output(exit_code);
}
