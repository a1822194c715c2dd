#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "console.hpp"
#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "core/printable.hpp"
#include "options.hpp"
#include "teaching/add_kernels.hpp"

namespace {

using convoy::cli::print_error;

int lost_output(int error) {
  print_error(
      "convoy: standard output: writing failed: {}. Check that it is open and the disk not full.\n",
      std::strerror(error));
  return 2;
}

// What was printed may still be on its way. Lost output is no success, though the work was done.
int after_output(int exit_code) {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return lost_output(errno);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace convoy::cli;
  prepare_process();
  Program program(
      "Runs a convolution and the operators after it (bias, activation or spiking neuron, "
      "max-pool) "
      "as one kernel, on CPUs and NVIDIA GPUs.",
      "convoy", convoy::version());
  program.root().footer(
      "Examples: convoy run models/fashion-scnn\n"
      "          convoy explain n4h32c64k128r3pad1+bias+relu+max2\n"
      "Each subcommand has its own help, for example: convoy bench --help\n"
      "Exit code 0: success; 1: a comparison failed; 2: an argument, a file or a device cannot be "
      "used.");
  int exit_code = 0;
  add_run(program.root(), exit_code);
  add_bench(program.root(), exit_code);
  add_verify(program.root(), exit_code);
  add_explain(program.root(), exit_code);
  add_tune(program.root(), exit_code);
  add_devices(program.root(), exit_code);
  add_check(program.root(), exit_code);
  add_dump(program.root(), exit_code);
  add_compare(program.root(), exit_code);
  add_graph(program.root(), exit_code);
  add_ladder(program.root(), exit_code);
  add_report(program.root(), exit_code);
  try {
    convoy::teaching::add_kernels();
    // A program may be started without even its name.
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    int told = 0;
    if (!program.parse(std::move(words), told)) return told == 0 ? after_output(told) : told;
  } catch (const convoy::Error& error) {
    print_error("convoy: {}\n", error.what());
    return 2;
  } catch (const std::system_error& error) {  // output that can't be written, threads not to be had
    if (std::ferror(stdout) != 0) return lost_output(error.code().value());
    print_error("convoy: {}\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    write_error(no_memory);
    return 2;
  } catch (const std::exception& error) {
    print_error("convoy: {}. Please report this with the command that you ran.\n",
                convoy::printable_lines(error.what()));
    return 2;
  }
  return after_output(exit_code);
}
