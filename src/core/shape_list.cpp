#include "core/shape_list.hpp"

#include <fmt/core.h>

#include "convoy/error.hpp"
#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"

namespace convoy {
namespace {

template <class T, class Parse>
std::vector<T> read_list(const std::string& path, Parse&& parse) {
  constexpr std::size_t most_bytes = 16 << 20;
  const auto bytes = read_file(path, most_bytes);
  std::string_view rest = without_mark(text_of(bytes));
  std::vector<T> all;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::string_view text = line.substr(0, line.find('#'));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      all.push_back(parse(text));
    } catch (const Error& error) {
      throw InvalidFile(fmt::format("{}:{}: {}", printable_path(path), number, error.what()));
    }
  }
  if (all.empty())
    throw InvalidFile(
        fmt::format("{}: found no stage, expected one per line", printable_path(path)));
  return all;
}

}  // namespace

std::vector<Stage> read_shape_list(const std::string& path) {
  return read_list<Stage>(path, [](std::string_view text) { return parse_stage(text); });
}

std::vector<OwnedChain> read_chain_list(const std::string& path, bool gpu) {
  return read_list<OwnedChain>(path, [&](std::string_view text) { return parse_chain(text, gpu); });
}

}  // namespace convoy
