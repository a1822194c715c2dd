// Text from outside, made fit to be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace convoy {

/// The text as a message, a table or a report may show it: control characters (also those of
/// Unicode's second block) and bytes that are not UTF-8 become '?', and of a text longer than
/// `most` bytes the beginning is left, with "..." behind it. Every name, path, word of a file,
/// argument and variable of the environment goes through here before it is printed.
std::string printable(std::string_view text, std::size_t most = 160);

/// The same with room for a path: its end is what tells.
std::string printable_path(std::string_view path);

/// The same for text of several lines: newlines and tabs stay.
std::string printable_lines(std::string_view text, std::size_t most = 8000);

/// Whether `text` is UTF-8 without control characters.
bool is_printable(std::string_view text);

/// The text behind the mark (U+FEFF) that some editors put before UTF-8; all of it where there is
/// none.
std::string_view without_mark(std::string_view text);

}  // namespace convoy
