// The JSON writer of the project.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace convoy {

/// The text of a JSON value, in ASCII. Names come from outside: what is not UTF-8 becomes U+FFFD,
/// where the library would throw, and what a terminal would obey is escaped.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace convoy
