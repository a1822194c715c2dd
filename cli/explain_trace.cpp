#include "explain_trace.hpp"

#include <fmt/core.h>

#include "core/file.hpp"
#include "inspect/trace_text.hpp"
#include "options.hpp"
#include "plan/trace.hpp"

namespace convoy::cli {

void add_trace(Command& command, TraceArguments& arguments) {
  command
      .add_option("--trace", arguments.file,
                  "Run with time stamps taken inside, tell head, loop and tail, and write the time "
                  "line for https://ui.perfetto.dev")
      ->type_name("FILE")
      ->check(not_empty());
}

bool explain_trace(const TraceArguments& arguments, const Stage& stage, const PlanOptions& options,
                   double seconds, bool json) {
  expect_writable(arguments.file);
  const TracedStage traced = trace_stage(stage, options, seconds);
  write_file_atomically(arguments.file, inspect::trace_file(traced));
  if (json)
    fmt::print("{}\n", inspect::trace_json(traced, arguments.file));
  else
    fmt::print("{}", inspect::trace_text(traced, arguments.file));
  return traced.same_bits;
}

}  // namespace convoy::cli
