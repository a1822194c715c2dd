// NumPy's .npy files: one array each.
#pragma once

#include <string>
#include <string_view>

#include "convoy/tensor.hpp"

namespace convoy::io {

/// Parses a file's bytes; `name` is the file's name, for messages. f4, f2, u1 and i4 keep their
/// type (f32, f16, u8, i32), f8 is rounded to f32, i8 must fit into i32. Up to five axes, C order,
/// little endian. Throws Error on anything else, and before allocating when the data is cut short.
Tensor parse_npy(std::string_view bytes, std::string_view name);

/// Reads and parses a file. Throws Error that names it.
Tensor read_npy(const std::string& path);

/// The bytes of a file with these values, as numpy.save writes them: version 1.0, little endian, C
/// order. f32, f16, u8 or i32, dense, on the host; throws Error for anything else.
std::string npy_of(const ConstTensorView& array);

}  // namespace convoy::io
