// Weight files: text (a number each, as numpy.savetxt writes a flattened array), .npy,
// .safetensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::io {

/// Parses exactly `count` finite numbers separated by white space. Throws Error that begins with
/// `name` and says how many there are, where the first bad one is, and what was expected;
/// `meaning` explains the count ("k16 r5 s5 c8"). Stores nothing beyond `count` values.
std::vector<float> parse_weights(std::string_view text, const std::string& name, Index count,
                                 const std::string& meaning);

/// The parameter `parameter` ("conv1.weight") of the model in `folder`: from the file
/// conv1.weight.txt, conv1.weight.npy or the entry of that name in a .safetensors file of the
/// folder (model.safetensors). Exactly `count` finite values, flattened. Throws Error.
std::vector<float> read_parameter(const std::string& folder, const std::string& parameter,
                                  Index count, const std::string& meaning);

/// Whether one of these files is there; a .safetensors file counts if it holds the entry.
bool has_parameter(const std::string& folder, const std::string& parameter);

}  // namespace convoy::io
