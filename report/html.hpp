// Text as HTML. Everything that comes from outside goes through `escape`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convoy::report {

/// Text for an element or a quoted attribute: & < > " ' become references, and what `printable`
/// replaces (control characters, bytes that are not UTF-8) becomes '?'.
std::string escape(std::string_view text);

/// <code> of the escaped text.
std::string code(std::string_view text);

/// A number as a person reads it: so many decimals, thousands grouped with commas.
std::string grouped(double value, int decimals = 0);
/// Three significant digits, never an exponent: "0.0312", "4.31", "1,230".
std::string short_number(double value);
/// Two decimals, more below 0.1: a ratio is never shown as 0.
std::string ratio_text(double ratio);
/// Seconds in the unit that fits: "12.3 µs".
std::string time_text(double seconds);
/// "1.25 MB"
std::string bytes_text(double bytes);

/// A table of cells that are HTML already. Columns are words on one line, numbers on the right, or
/// prose, which is broken into lines. It scrolls by itself where it is wider than the page, by
/// keyboard too.
class Table {
 public:
  enum class Kind { words, number, prose };
  struct Column {
    std::string title;  // HTML
    Kind kind = Kind::words;
  };
  /// `name` is what a screen reader says of the scrolling region: plain text.
  Table(std::string name, std::vector<Column> columns);

  void add(const std::vector<std::string>& cells);
  bool empty() const { return rows_ == 0; }
  std::string html() const;

 private:
  std::string name_;
  std::vector<Column> columns_;
  std::string body_;
  int rows_ = 0;
};

inline constexpr Table::Kind number_column = Table::Kind::number, prose_column = Table::Kind::prose;

/// A part that opens on click or Enter; `summary` is HTML.
std::string details(std::string_view summary, std::string_view content, bool open = false);

/// A part of the page with a heading; `id` is what links name.
std::string section(std::string_view id, std::string_view title, std::string_view content);

}  // namespace convoy::report
