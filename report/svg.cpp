#include "report/svg.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace convoy::report {
namespace {

// A coordinate with one decimal, none where it would be 0.
Html coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return escape(text);
}

std::string tick_text(double value) {
  if (value >= 1e15) return fmt::format("{:.0e}", value);
  if (value >= 1e12) return fmt::format("{:g}T", value * 1e-12);
  if (value >= 1e9) return fmt::format("{:g}G", value * 1e-9);
  if (value >= 1e6) return fmt::format("{:g}M", value * 1e-6);
  if (value >= 1e4) return fmt::format("{:g}k", value * 1e-3);
  return fmt::format("{:g}", value);
}

// The ticks whose labels have room, from the low end on. `room`: of the axis in pixels; `size`: of
// a label along it.
template <class Size>
std::vector<double> with_room(const std::vector<double>& ticks, const Scale& scale, double room,
                              Size size) {
  std::vector<double> kept;
  for (const double tick : ticks) {
    if (!kept.empty()) {
      const double apart = room * (scale.at(tick) - scale.at(kept.back()));
      if (apart < (size(tick) + size(kept.back())) / 2 + 6) continue;
    }
    kept.push_back(tick);
  }
  return kept;
}

// Of a label in its font.
constexpr double character = 7, line_height = 13;

// Width of the stretched viewBox.
constexpr double stretched = 1000;

// 1, 2 and 5 times powers of ten, or the powers alone, in a range.
std::vector<double> log_ticks(double low, double high, const std::vector<double>& digits) {
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(low)));
       power <= static_cast<int>(std::ceil(std::log10(high))); ++power)
    for (const double digit : digits) {
      const double tick = digit * std::pow(10.0, power);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  return ticks;
}

}  // namespace

Scale Scale::linear(double low, double high) {
  if (!(high > low)) high = low + 1;
  return {low, high, false};
}

Scale Scale::log(double low, double high) {
  if (!(high > low)) low = low / 2, high = low * 4;
  return {low, high, true};
}

double Scale::at(double value) const {
  const double share = log_ ? (std::log(std::max(value, 1e-300)) - std::log(low_)) /
                                  (std::log(high_) - std::log(low_))
                            : (value - low_) / (high_ - low_);
  return std::clamp(share, 0.0, 1.0);
}

std::vector<double> Scale::ticks(std::size_t most) const {
  if (log_) {
    std::vector<double> ticks = log_ticks(low_, high_, {1, 2, 5});
    if (ticks.size() > most) ticks = log_ticks(low_, high_, {1});
    while (ticks.size() > most) {
      std::vector<double> half;
      for (std::size_t i = 0; i < ticks.size(); i += 2) half.push_back(ticks[i]);
      ticks = std::move(half);
    }
    if (ticks.empty()) ticks.push_back(low_);
    return ticks;
  }
  const double raw = (high_ - low_) / static_cast<double>(std::max<std::size_t>(1, most - 1));
  double step = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double times : {1.0, 2.0, 5.0, 10.0})
    if (step * times >= raw * (1 - 1e-9)) {
      step *= times;
      break;
    }
  std::vector<double> ticks;
  for (double tick = std::ceil(low_ / step) * step; tick <= high_ * (1 + 1e-9); tick += step)
    ticks.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
  if (ticks.empty()) ticks.push_back(low_);
  return ticks;
}

Plot::Plot(std::string title, Axis x, Axis y, int height)
    : title_(std::move(title)), x_(std::move(x)), y_(std::move(y)), height_(height) {}

double Plot::y_pixels(double value) const {
  return height_ * (1 - y_.scale.at(value));
}

Html Plot::path_of(const std::vector<DataPoint>& points, bool joined) const {
  Html path;
  for (const DataPoint& point : points)
    path += html("{}{} {}{}", path.empty() || !joined ? html("M") : html("L"),
                 coordinate(stretched * x_.scale.at(point.x)), coordinate(y_pixels(point.y)),
                 joined ? Html() : html("h0"));
  return path;
}

void Plot::dots(std::string_view color, const std::vector<DataPoint>& points) {
  if (points.empty()) return;
  paths_ += html("<path class=\"dots {}\" d=\"{}\"/>\n", escape(color), path_of(points, false));
}

void Plot::line(std::string_view color, const std::vector<DataPoint>& points,
                std::string_view kind) {
  if (points.size() < 2) return;
  paths_ += html("<path class=\"line {} {}\" d=\"{}\"/>\n", escape(color), escape(kind),
                 path_of(points, true));
}

void Plot::label(DataPoint at, const Html& text, std::string_view anchor, int dy) {
  labels_ += html("<text x=\"{}%\" y=\"{}\" text-anchor=\"{}\">{}</text>\n",
                  coordinate(100 * x_.scale.at(at.x)), coordinate(y_pixels(at.y) + dy),
                  escape(anchor), text);
}

Html Plot::svg() const {
  Html text = html(
      "<div class=plot><div class=ytitle>{}</div>\n<svg class=chart role=img height=\"{}\" "
      "aria-label=\"{}\">\n",
      escape(y_.title), height_, escape(title_));
  const auto width = [](double tick) {
    return character * static_cast<double>(tick_text(tick).size());
  };
  for (const double tick : with_room(x_.ticks.empty() ? x_.scale.ticks(6) : x_.ticks, x_.scale,
                                     narrowest_plot, width)) {
    const Html x = coordinate(100 * x_.scale.at(tick));
    text += html(
        "<line class=grid x1=\"{0}%\" x2=\"{0}%\" y1=\"0\" y2=\"{1}\"/>"
        "<text class=tick x=\"{0}%\" y=\"{2}\" text-anchor=\"middle\">{3}</text>\n",
        x, height_, height_ + 17, escape(tick_text(tick)));
  }
  for (const double tick : with_room(y_.ticks.empty() ? y_.scale.ticks(8) : y_.ticks, y_.scale,
                                     height_, [](double) { return line_height; })) {
    const Html y = coordinate(y_pixels(tick));
    text += html(
        "<line class=grid x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>"
        "<text class=tick x=\"-7\" y=\"{1}\" text-anchor=\"end\">{2}</text>\n",
        y, coordinate(y_pixels(tick) + 4), escape(tick_text(tick)));
  }
  text += html(
      "<svg width=\"100%\" height=\"{0}\" viewBox=\"0 0 {1:.0f} {0}\" "
      "preserveAspectRatio=\"none\" overflow=\"visible\">\n{2}</svg>\n{3}</svg>\n",
      height_, stretched, paths_, labels_);
  return text + html("<div class=xtitle>{}</div></div>\n", escape(x_.title));
}

Html legend(const std::vector<std::pair<std::string, std::string>>& color_and_name) {
  Html text = html("<ul class=legend>");
  for (const auto& [color, name] : color_and_name)
    text += html(
        "<li><svg width=\"14\" height=\"14\" aria-hidden=true><circle class=\"{}\" cx=\"7\" "
        "cy=\"7\" r=\"5\"/></svg>{}",
        escape(color), escape(name));
  return text + html("</ul>\n");
}

Html range_cell(const Scale& scale, double low, double value, double high) {
  Html text = html("<svg class=cell>");
  if (scale.covers(1)) {
    const Html one = coordinate(100 * scale.at(1));
    text += html("<line class=one x1={0}% x2={0}% y2=18 />", one);
  }
  if (high > low)
    text += html("<line class=range x1={}% x2={}% y1=9 y2=9 />", coordinate(100 * scale.at(low)),
                 coordinate(100 * scale.at(high)));
  return text + html("<circle class={} cx={}% cy=9 r=4 /></svg>",
                     value < 1 ? html("lost") : html("c0"), coordinate(100 * scale.at(value)));
}

Html bar_cell(const Scale& scale, double value, std::string_view color) {
  return html("<svg class=cell><rect class={} width={}% height=12 y=3 /></svg>", attribute(color),
              coordinate(100 * scale.at(value)));
}

Html figure(const Html& caption, const Html& legend, const Html& svg) {
  return html("<figure>\n<figcaption>{}</figcaption>\n{}{}</figure>\n", caption, legend, svg);
}

Html figure(std::string_view caption, const Html& legend, const Html& svg) {
  return figure(escape(caption), legend, svg);
}

}  // namespace convoy::report
