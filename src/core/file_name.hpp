// Names that are free text, as parts of file names.
#pragma once

#include <string>
#include <string_view>

namespace convoy {

/// The name as a part of a file's name: at most 220 bytes, without "/" and control characters. A
/// name that has no such byte and is not too long stays as it is. Other names have %XX, in
/// hexadecimal digits, for each byte that a file's name can't have, and for a "%" that would be
/// read as such. Of a longer one the beginning is left, with a hash of the whole name behind it.
/// Two names give two file names, unless both are too long and their hashes collide.
///
/// `file_name` in python/convoy/model_folder.py is the same function.
std::string file_name_of(std::string_view name);

}  // namespace convoy
