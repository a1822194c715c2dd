#include "core/file_name.hpp"

#include <fmt/core.h>

#include <cctype>
#include <cstdint>

namespace convoy {
namespace {

// File systems take 255 bytes. The rest is for the words around the name, such as "dbg_" and
// "_mem_ref.bin", and for the ending of a temporary file.
constexpr std::size_t longest_file_name = 220;
constexpr std::size_t longest_before_hash = longest_file_name - 18;

/// FNV-1a of 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool is_digit(std::string_view name, std::size_t at) {
  return at < name.size() && std::isxdigit(static_cast<unsigned char>(name[at])) != 0;
}

/// Whether the byte can't stay: also a "%" that begins what only this function writes.
bool is_escaped(std::string_view name, std::size_t at) {
  const auto byte = static_cast<unsigned char>(name[at]);
  if (byte == '%')
    return (is_digit(name, at + 1) && is_digit(name, at + 2)) ||
           (at + 1 < name.size() && name[at + 1] == '~');
  return byte < 0x20 || byte == 0x7f || byte == '/';
}

}  // namespace

std::string file_name_of(std::string_view name) {
  std::string all;
  std::size_t cut = 0;  // before a whole character
  for (std::size_t at = 0; at < name.size(); ++at) {
    const auto byte = static_cast<unsigned char>(name[at]);
    const bool begins = (byte & 0xc0U) != 0x80U;
    if (begins && all.size() <= longest_before_hash) cut = all.size();
    if (is_escaped(name, at))
      all += fmt::format("%{:02X}", byte);
    else
      all += name[at];
  }
  if (all.size() <= longest_file_name) return all;
  return all.substr(0, cut) + fmt::format("%~{:016x}", hash_of(name));
}

}  // namespace convoy
