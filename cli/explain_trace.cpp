#include "explain_trace.hpp"

#include <fmt/core.h>

#include "convoy/error.hpp"
#include "inspect/trace_text.hpp"
#include "options.hpp"
#include "plan/trace.hpp"
#include "result_file.hpp"

namespace convoy::cli {

void add_trace(Command& command, TraceArguments& arguments) {
  command
      .add_option(
          "--trace", arguments.file,
          "Run with time stamps inside the kernel, print the times of head, loop and tail, and "
          "write the time line to this file, for https://ui.perfetto.dev; - prints only the "
          "time line, on standard output")
      ->type_name("FILE")
      ->check(not_empty());
}

bool explain_trace(const TraceArguments& arguments, const Stage& stage, const PlanOptions& options,
                   double seconds, bool json) {
  const ResultFile file("--trace", arguments.file);
  if (json && file.on_standard_output())
    throw Error(
        "explain: --json and --trace would both write to standard output, expected one of them. "
        "Name a file for --trace.");
  const TracedStage traced = trace_stage(stage, options, seconds);
  file.write(inspect::trace_file(traced));
  if (file.alone()) return traced.same_bits;
  if (json)
    fmt::print("{}\n", inspect::trace_json(traced, arguments.file));
  else
    fmt::print("{}", inspect::trace_text(traced, arguments.file));
  return traced.same_bits;
}

}  // namespace convoy::cli
