// The .safetensors format: a JSON header with types, shapes and places, then the numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace convoy::io {

/// The values of one tensor, F32, F16 or BF16, flattened, as fp32. Every bound is checked before
/// anything is allocated. Throws Error naming `name`: damaged file, no such tensor, another type.
std::vector<float> parse_safetensors(std::span<const unsigned char> bytes, const std::string& name,
                                     const std::string& tensor);

/// Whether the file holds a tensor of that name. Throws Error when its header is damaged.
bool has_safetensor(std::span<const unsigned char> bytes, const std::string& name,
                    const std::string& tensor);

}  // namespace convoy::io
