// Text as HTML. Raw text and markup are of two types, so that a forgotten `escape` does not
// compile: std::string and std::string_view are raw, `Html` is markup, and nothing but `escape`
// and a literal of the source leads from one to the other.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace convoy::report {

class Html;

/// What `html` takes beside its literal. Raw text is neither, and a char is raw text.
template <class T>
concept MarkupOrNumber = std::same_as<T, Html> ||
    (std::is_arithmetic_v<T> && !std::same_as<T, char>);

template <MarkupOrNumber... Values>
struct MarkupLiteral;

/// Markup of a page.
class Html {
 public:
  Html() = default;

  bool empty() const { return markup_.empty(); }
  /// The markup, for whoever writes the page.
  const std::string& text() const { return markup_; }

  Html& operator+=(const Html& more) {
    markup_ += more.markup_;
    return *this;
  }
  friend Html operator+(Html left, const Html& right) {
    left += right;
    return left;
  }

 private:
  explicit Html(std::string markup) : markup_(std::move(markup)) {}
  friend Html escape(std::string_view text);
  template <MarkupOrNumber... Values>
  friend Html html(std::type_identity_t<MarkupLiteral<Values...>> literal, const Values&... values);

  std::string markup_;
};

/// Text for an element or a quoted attribute: & < > " ' become references, and what `printable`
/// replaces (control characters, bytes that are not UTF-8) becomes '?'.
Html escape(std::string_view text);

/// What fmt is given for a value that `html` takes.
inline std::string_view formatted(const Html& markup) {
  return markup.text();
}
template <class Number>
Number formatted(Number number) {
  return number;
}

/// A literal of the source with a {} for each value. Nothing that is made at run time is one.
template <MarkupOrNumber... Values>
struct MarkupLiteral {
  fmt::format_string<decltype(formatted(std::declval<const Values&>()))...> format;
  template <std::size_t size>
  consteval MarkupLiteral(const char (&literal)[size]) : format(literal) {}
};

/// The literal's markup with values in it, as fmt::format writes them: html("<b>{:.1f}</b>", 2.5).
/// An attribute's value stands in quotes there, or comes from `attribute`.
template <MarkupOrNumber... Values>
Html html(std::type_identity_t<MarkupLiteral<Values...>> literal, const Values&... values) {
  return Html(fmt::format(literal.format, formatted(values)...));
}

/// Items one after another, each made markup by `to_html`, with raw text between them.
template <class Items, class ToHtml>
Html joined(const Items& items, std::string_view separator, ToHtml to_html) {
  Html text;
  for (const auto& item : items) {
    if (!text.empty()) text += escape(separator);
    text += to_html(item);
  }
  return text;
}

/// An attribute's value: bare where it is one word (class=c0), else in quotes.
Html attribute(std::string_view value);

/// <code> of the escaped text.
Html code(std::string_view text);

/// "1 thread", "2 threads"
Html counted(std::int64_t count, std::string_view what);
/// A number as a person reads it: so many decimals, thousands grouped with commas.
Html grouped(double value, int decimals = 0);
/// Three significant digits, never an exponent: "0.0312", "4.31", "1,230".
Html short_number(double value);
/// Two decimals, more below 0.1: a ratio is never shown as 0.
Html ratio_text(double ratio);
/// Seconds in the unit that fits: "12.3 µs".
Html time_text(double seconds);
/// "1.25 MB"
Html bytes_text(double bytes);

/// A table. Columns are words on one line, numbers on the right, or prose, which is broken into
/// lines. It scrolls by itself where it is wider than the page, by keyboard too.
class Table {
 public:
  enum class Kind { words, number, prose };
  struct Column {
    Html title;
    Kind kind;
    Column(std::string_view raw, Kind of = Kind::words) : Column(escape(raw), of) {}
    Column(Html markup, Kind of = Kind::words) : title(std::move(markup)), kind(of) {}
  };
  /// `name` is what a screen reader says of the scrolling region: raw text.
  Table(std::string name, std::vector<Column> columns);

  void add(const std::vector<Html>& cells);
  bool empty() const { return rows_ == 0; }
  Html html() const;

 private:
  std::string name_;
  std::vector<Column> columns_;
  Html body_;
  int rows_ = 0;
};

inline constexpr Table::Kind number_column = Table::Kind::number, prose_column = Table::Kind::prose;

/// A part that opens on click or Enter.
Html details(const Html& summary, const Html& content, bool open = false);
Html details(std::string_view summary, const Html& content, bool open = false);

/// A part of the page with a heading; `id` is what links name.
Html section(std::string_view id, std::string_view title, const Html& content);

}  // namespace convoy::report
