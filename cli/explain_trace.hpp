// convoy explain STAGE --trace FILE: a run with time stamps taken inside it.
#pragma once

#include <memory>
#include <string>

#include "command.hpp"
#include "convoy/plan.hpp"

namespace convoy::cli {

struct TraceArguments {
  std::string file;
  bool asked_for() const { return !file.empty(); }
};
/// `arguments` must outlive the parsing.
void add_trace(Command& command, TraceArguments& arguments);

/// Runs the stage, writes the file and prints the summary. Throws Error. Whether the traced run
/// gave the right bits.
bool explain_trace(const TraceArguments& arguments, const Stage& stage, const PlanOptions& options,
                   double seconds, bool json);

}  // namespace convoy::cli
