// The subcommands of `convoy`, one file each. None does arithmetic: they call the library.
#pragma once

#include "command.hpp"

namespace convoy::cli {

// Each registers its subcommand. The callback throws convoy::Error for usage or input (exit code 2)
// and sets `exit_code` to 1 when a check failed.
void add_run(Command& app, int& exit_code);
void add_bench(Command& app, int& exit_code);
void add_verify(Command& app, int& exit_code);
void add_explain(Command& app, int& exit_code);
void add_tune(Command& app, int& exit_code);
void add_devices(Command& app, int& exit_code);
void add_check(Command& app, int& exit_code);
void add_dump(Command& app, int& exit_code);
void add_compare(Command& app, int& exit_code);
void add_graph(Command& app, int& exit_code);
void add_ladder(Command& app, int& exit_code);
void add_report(Command& app, int& exit_code);

}  // namespace convoy::cli
