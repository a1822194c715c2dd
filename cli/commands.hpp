// The subcommands of `convoy`, one file each. None does arithmetic: they call the library.
#pragma once

#include <CLI/CLI.hpp>

namespace convoy::cli {

// Each registers its subcommand. The callback throws convoy::Error for usage or input (exit code 2)
// and sets `exit_code` to 1 when a check failed.
void add_run(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_devices(CLI::App& app, int& exit_code);

}  // namespace convoy::cli
