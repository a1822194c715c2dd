// Tuning of a whole network, for the library's own programs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convoy/tune.hpp"
#include "network/program.hpp"

namespace convoy::network {

/// Called before each measurement with its number, from 1, the number of all that are known by
/// then, and the text of the stage or chain.
using BeforeMeasurement = std::function<void(std::size_t, std::size_t, const std::string&)>;

/// As `tune` of a network.
NetworkTuneResult tune_network(const Program& program, const std::vector<Index>& batches,
                               double seconds, bool save, const BeforeMeasurement& before = {});

}  // namespace convoy::network
