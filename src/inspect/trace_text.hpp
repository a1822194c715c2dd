// A traced stage as a file for Perfetto, and as lines that a person reads.
#pragma once

#include <string>

#include "plan/trace.hpp"

namespace convoy::inspect {

/// Chrome's trace event format: a group of tracks a multiprocessor, or the threads of a CPU.
std::string trace_file(const TracedStage& traced);

/// Head, loop and tail beside the prediction, and what the file holds.
std::string trace_text(const TracedStage& traced, const std::string& file);
/// The same for a program, as an object of JSON.
std::string trace_json(const TracedStage& traced, const std::string& file);

}  // namespace convoy::inspect
