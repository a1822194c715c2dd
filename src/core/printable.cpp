#include "core/printable.hpp"

namespace convoy {
namespace {

// Bytes of the printable character that begins at `text[at]`; 0 where none does.
std::size_t character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  // RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  unsigned code = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const unsigned next = byte(at + i);
    if (next < 0x80 || next > 0xbf) return 0;
    code = code << 6 | (next & 0x3f);
  }
  constexpr unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool control = code < 0xa0;                             // C1
  const bool separator = code == 0x2028 || code == 0x2029;      // ends a line on some terminals
  const bool direction = (code >= 0x202a && code <= 0x202e) ||  // turns the text behind it round
                         (code >= 0x2066 && code <= 0x2069);
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) || control ||
      separator || direction)
    return 0;
  return bytes;
}

std::string cleaned(std::string_view text, std::size_t most, std::string_view kept) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const bool keep = kept.find(text[at]) != std::string_view::npos;
    const std::size_t bytes = keep ? 1 : character(text, at);
    const std::size_t step = bytes > 0 ? bytes : 1;
    if (shown.size() + step > most) return shown + "...";
    if (bytes > 0)
      shown += text.substr(at, bytes);
    else
      shown += '?';
    at += step;
  }
  return shown;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  return cleaned(text, most, {});
}

std::string printable_path(std::string_view path) {
  return cleaned(path, 1000, {});
}

std::string printable_lines(std::string_view text, std::size_t most) {
  return cleaned(text, most, "\n\t");
}

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

}  // namespace convoy
