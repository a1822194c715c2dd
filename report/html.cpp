#include "report/html.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "core/printable.hpp"

namespace convoy::report {
namespace {

const char* class_of(Table::Kind kind) {
  return kind == Table::Kind::number ? " class=n" : kind == Table::Kind::prose ? " class=p" : "";
}

}  // namespace

std::string escape(std::string_view text) {
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
  return safe;
}

std::string code(std::string_view text) {
  return "<code>" + escape(text) + "</code>";
}

std::string grouped(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", std::abs(value), decimals);
  const std::size_t point = text.find('.');
  auto at = static_cast<std::ptrdiff_t>(point == std::string::npos ? text.size() : point) - 3;
  for (; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
  return value < 0 ? "-" + text : text;
}

std::string short_number(double value) {
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return grouped(value, std::max(0, std::min(9, 2 - magnitude)));
}

std::string ratio_text(double ratio) {
  return ratio > 0 && ratio < 0.1 ? short_number(ratio) : fmt::format("{:.2f}", ratio);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return short_number(seconds * 1e6) + " µs";
  if (seconds < 1) return short_number(seconds * 1e3) + " ms";
  return short_number(seconds) + " s";
}

std::string bytes_text(double bytes) {
  if (bytes < 1e3) return grouped(bytes) + " B";
  if (bytes < 1e6) return short_number(bytes * 1e-3) + " kB";
  if (bytes < 1e9) return short_number(bytes * 1e-6) + " MB";
  return short_number(bytes * 1e-9) + " GB";
}

Table::Table(std::string name, std::vector<Column> columns)
    : name_(std::move(name)), columns_(std::move(columns)) {}

// End tags of cells and rows may be left out in HTML; thousands of rows are shorter for it.
void Table::add(const std::vector<std::string>& cells) {
  body_ += "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i)
    body_ += std::string("<td") + (i < columns_.size() ? class_of(columns_[i].kind) : "") + ">" +
             cells[i];
  body_ += "\n";
  ++rows_;
}

std::string Table::html() const {
  std::string text = fmt::format(
      "<div class=wide tabindex=0 role=region aria-label=\"{}\"><table><thead><tr>", escape(name_));
  for (const Column& column : columns_)
    text += fmt::format("<th scope=col{}>{}", class_of(column.kind), column.title);
  return text + "</thead><tbody>\n" + body_ + "</tbody></table></div>\n";
}

std::string details(std::string_view summary, std::string_view content, bool open) {
  return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", open ? " open" : "",
                     summary, content);
}

std::string section(std::string_view id, std::string_view title, std::string_view content) {
  return fmt::format(
      "<section id={0} aria-labelledby={0}-title>\n<h2 id={0}-title>{1}</h2>\n{2}</section>\n", id,
      title, content);
}

}  // namespace convoy::report
