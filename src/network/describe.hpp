// A program as text, for people.
#pragma once

#include <string>

#include "network/program.hpp"

namespace convoy::network {

/// A line per step, with the buffer and the channels of what it reads and writes, and the memory of
/// one image and of the largest pass.
std::string describe(const Program& program);

}  // namespace convoy::network
