#include "report/html.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/printable.hpp"

namespace convoy::report {
namespace {

Html class_of(Table::Kind kind) {
  return kind == Table::Kind::number  ? html(" class=n")
         : kind == Table::Kind::prose ? html(" class=p")
                                      : Html();
}

}  // namespace

Html escape(std::string_view text) {
  std::string safe;
  for (const char c : printable(text, 4000)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return Html(std::move(safe));
}

Html attribute(std::string_view value) {
  constexpr std::string_view of_words =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_#";
  const bool word = !value.empty() && value.find_first_not_of(of_words) == value.npos;
  return word ? escape(value) : html("\"{}\"", escape(value));
}

Html code(std::string_view text) {
  return html("<code>{}</code>", escape(text));
}

Html counted(std::int64_t count, std::string_view what) {
  return html("{} {}{}", count, escape(what), count == 1 ? Html() : html("s"));
}

Html grouped(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", std::abs(value), decimals);
  const std::size_t point = text.find('.');
  auto at = static_cast<std::ptrdiff_t>(point == std::string::npos ? text.size() : point) - 3;
  for (; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return escape(value < 0 ? "-" + text : text);
}

Html short_number(double value) {
  if (value == 0) return html("0");
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return grouped(value, std::max(0, std::min(9, 2 - magnitude)));
}

Html ratio_text(double ratio) {
  return ratio > 0 && ratio < 0.1 ? short_number(ratio) : html("{:.2f}", ratio);
}

Html time_text(double seconds) {
  if (seconds < 1e-3) return html("{} µs", short_number(seconds * 1e6));
  if (seconds < 1) return html("{} ms", short_number(seconds * 1e3));
  return html("{} s", short_number(seconds));
}

Html bytes_text(double bytes) {
  if (bytes < 1e3) return html("{} B", grouped(bytes));
  if (bytes < 1e6) return html("{} kB", short_number(bytes * 1e-3));
  if (bytes < 1e9) return html("{} MB", short_number(bytes * 1e-6));
  return html("{} GB", short_number(bytes * 1e-9));
}

Table::Table(std::string name, std::vector<Column> columns)
    : name_(std::move(name)), columns_(std::move(columns)) {}

// End tags of cells and rows may be left out in HTML; thousands of rows are shorter for it.
void Table::add(const std::vector<Html>& cells) {
  body_ += report::html("<tr>");
  for (std::size_t i = 0; i < cells.size(); ++i)
    body_ += report::html("<td{}>{}", i < columns_.size() ? class_of(columns_[i].kind) : Html(),
                          cells[i]);
  body_ += report::html("\n");
  ++rows_;
}

Html Table::html() const {
  Html head;
  for (const Column& column : columns_)
    head += report::html("<th scope=col{}>{}", class_of(column.kind), column.title);
  return report::html(
      "<div class=wide tabindex=0 role=region aria-label=\"{}\"><table><thead><tr>{}</thead>"
      "<tbody>\n{}</tbody></table></div>\n",
      escape(name_), head, body_);
}

Html details(const Html& summary, const Html& content, bool open) {
  return html("<details{}><summary>{}</summary>\n{}</details>\n", open ? html(" open") : Html(),
              summary, content);
}

Html details(std::string_view summary, const Html& content, bool open) {
  return details(escape(summary), content, open);
}

Html section(std::string_view id, std::string_view title, const Html& content) {
  const Html title_id = attribute(std::string(id) + "-title");
  return html("<section id={} aria-labelledby={}>\n<h2 id={}>{}</h2>\n{}</section>\n",
              attribute(id), title_id, title_id, escape(title), content);
}

}  // namespace convoy::report
