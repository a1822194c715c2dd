// The descriptors and signals that the program was started with, and what it says on standard
// error.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string_view>

namespace convoy::cli {

/// To be called first. Opens /dev/null for standard descriptors that are closed, lest a file of
/// ours gets their number and messages go into it (writing to standard output still fails); lets a
/// signal that ends the program remove the file that it was about to write; and lets a write beyond
/// the limit of a file's size fail instead of ending the program.
/// Where memory runs out a second time, the program ends with an error instead of by a signal.
void prepare_process();

/// Columns of the terminal that standard output is; 0 where it is none, or does not tell.
std::size_t terminal_columns();

/// Writes to standard error. Where that can't be written to (closed, full, nobody reads), the text
/// is lost and nothing else happens: the exit code still tells.
void write_error(std::string_view text) noexcept;

/// What the program says when memory has run out.
inline constexpr std::string_view no_memory =
    "convoy: no memory is left. Use a smaller n or smaller images.\n";

template <class... Words>
void print_error(fmt::format_string<Words...> format, Words&&... words) noexcept {
  try {
    write_error(fmt::format(format, std::forward<Words>(words)...));
  } catch (...) {  // no memory for the text
    write_error("convoy: an error, and no memory is left to tell which\n");
  }
}

}  // namespace convoy::cli
