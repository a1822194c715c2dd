// {fmt}'s functions as scripts/lint shows them to the analyser: declared, without their bodies. It would follow each
// call through the formatting and spend the steps there that it has for the function that calls.
#pragma once

#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

namespace fmt {

struct checked_text {
  template <class Text>
  consteval checked_text(const Text& text) : view(text) {}
  std::string_view view;
};
template <class... Args>
using format_string = checked_text;
struct joined {};

template <class... Args>
std::string format(checked_text text, const Args&... args);
template <class Out, class... Args>
Out format_to(Out out, checked_text text, const Args&... args);
template <class... Args>
void print(checked_text text, const Args&... args);
template <class... Args>
void print(std::FILE* file, checked_text text, const Args&... args);
template <class Range>
joined join(const Range& range, std::string_view separator);
template <class Iterator>
joined join(Iterator begin, Iterator end, std::string_view separator);
std::tm gmtime(std::time_t seconds);

}  // namespace fmt
