// Charts as SVG that needs no script and no network.
//
// A plot is as wide as its column on the page: x is given in per cent, y in pixels, so that text
// and marks keep their size on a phone and on a desk. Dots and lines of many points are one path
// in a viewBox that is stretched, with strokes that are not.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/html.hpp"

namespace convoy::report {

/// From values to a share of an axis.
class Scale {
 public:
  static Scale linear(double low, double high);
  /// Both above 0. low and high are widened by a margin where they are equal.
  static Scale log(double low, double high);
  /// 0 at the low end, 1 at the high end; values beyond stay at the ends.
  double at(double value) const;
  bool covers(double value) const { return value >= low_ && value <= high_; }
  double low() const { return low_; }
  double high() const { return high_; }
  /// Round values from end to end, at most `most`, at least one.
  std::vector<double> ticks(std::size_t most) const;

 private:
  Scale(double low, double high, bool log) : low_(low), high_(high), log_(log) {}
  double low_, high_;
  bool log_;
};

struct DataPoint {
  double x = 0, y = 0;
};

/// What a plot's axis shows.
struct Axis {
  Scale scale;
  std::string title;          // with the unit
  std::vector<double> ticks;  // empty: round values
};

/// What a plot is at least wide, on a phone: pixels.
inline constexpr double narrowest_plot = 250;

/// A chart with two axes. Colours are classes of the page's style sheet (`c0` is ours), several
/// with spaces between them.
class Plot {
 public:
  /// `title` is what a screen reader says; height in pixels, without the labels below.
  Plot(std::string title, Axis x, Axis y, int height = 300);

  /// Round dots. What lies beyond the axes is drawn at their ends.
  void dots(std::string_view color, const std::vector<DataPoint>& points);
  /// A line through points; `kind` is one more class, as "dash".
  void line(std::string_view color, const std::vector<DataPoint>& points,
            std::string_view kind = "");
  /// Text at a point; `anchor`: start, middle or end. dy in pixels, down.
  void label(DataPoint at, const Html& text, std::string_view anchor, int dy = 0);

  Html svg() const;

 private:
  double y_pixels(double value) const;
  Html path_of(const std::vector<DataPoint>& points, bool joined) const;

  std::string title_;
  Axis x_, y_;
  int height_;
  Html paths_, labels_;
};

/// Names and colours of what a plot shows.
Html legend(const std::vector<std::pair<std::string, std::string>>& color_and_name);

/// A dot with its range on a scale, for a table's cell. `one`: where the scale's 1 is drawn, or
/// nothing where it does not cover 1.
Html range_cell(const Scale& scale, double low, double value, double high);
/// A bar from the scale's low end, for a table's cell.
Html bar_cell(const Scale& scale, double value, std::string_view color = "c0");

/// A figure: what it shows, its legend and the drawing.
Html figure(const Html& caption, const Html& legend, const Html& svg);
Html figure(std::string_view caption, const Html& legend, const Html& svg);

}  // namespace convoy::report
