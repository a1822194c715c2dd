// A network's profile as a table for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "inspect/profile.hpp"

namespace convoy::cli {

std::string to_text(const inspect::NetworkProfile& profile);
nlohmann::ordered_json to_json(const inspect::NetworkProfile& profile);

}  // namespace convoy::cli
