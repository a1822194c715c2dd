// Where and by what a result was measured: what each record of the bench begins with.
#pragma once

#include <nlohmann/json.hpp>

#include "core/machine.hpp"

namespace convoy::bench {

/// The library's version, commit, compiler and flags, the date, the machine that the plans run on,
/// and of a GPU also its driver and the host's CPU.
nlohmann::json record_of(const Machine& machine);

}  // namespace convoy::bench
