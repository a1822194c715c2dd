#include "comparison_text.hpp"

#include <fmt/core.h>

#include <cmath>

#include "core/printable.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

void ComparisonOptions::add_to(Command& command) {
  command.add_option("--tol", tolerance.absolute, "Allowed absolute difference of a value")
      ->type_name("X")
      ->capture_default_str()
      ->check(between(0.0, 1e30));
  command
      .add_option("--rtol", tolerance.relative,
                  "Allowed difference relative to the operator's largest value, added to --tol")
      ->type_name("X")
      ->capture_default_str()
      ->check(between(0.0, 1e30));
  command.add_option("--topk", topk, "Number of worst values to print per wrong operator")
      ->type_name("N")
      ->capture_default_str()
      ->check(between(Index{0}, 1000000));
}

std::string text_of(const inspect::Difference& difference, const std::vector<Index>& shape) {
  const std::vector<Index> at = inspect::coordinates(difference.at, shape);
  const std::string place =
      shape[1] > 1
          ? fmt::format("(t,n,h,w,c) = ({},{},{},{},{})", at[0], at[1], at[2], at[3], at[4])
          : fmt::format("(t,h,w,c) = ({},{},{},{})", at[0], at[2], at[3], at[4]);
  std::string text = fmt::format("{}: {}, expected {}, error {:.3g}", place, difference.got,
                                 difference.expected, difference.error);
  if (difference.distance >= 0)
    text += fmt::format("; membrane {:.3g} from the threshold", difference.distance);
  return text;
}

std::string off_text(const std::string& name, const inspect::Comparison& comparison,
                     const std::vector<Index>& shape) {
  std::string text = fmt::format("{}: {} of {} values are wrong", printable(name), comparison.off,
                                 comparison.values);
  if (comparison.not_finite > 0)
    text += fmt::format(", {} of them NaN or infinite", comparison.not_finite);
  for (const inspect::Difference& difference : comparison.worst)
    text += "\n  " + text_of(difference, shape);
  return text + "\n";
}

nlohmann::ordered_json json_of(const inspect::Comparison& comparison,
                               const std::vector<Index>& shape) {
  nlohmann::ordered_json worst = nlohmann::ordered_json::array();
  for (const inspect::Difference& one : comparison.worst) {
    nlohmann::ordered_json json = {{"at", inspect::coordinates(one.at, shape)},
                                   {"got", number(static_cast<double>(one.got))},
                                   {"expected", number(static_cast<double>(one.expected))},
                                   {"error", number(one.error)}};
    if (one.distance >= 0) json["distance_from_threshold"] = number(one.distance);
    worst.push_back(std::move(json));
  }
  return {{"values", comparison.values},
          {"off", comparison.off},
          {"spikes_at_threshold", comparison.excused},
          {"not_finite", comparison.not_finite},
          {"max_error", comparison.max_error},
          {"mean_error", comparison.mean_error},
          {"relative_error", number(comparison.relative_error)},
          {"worst", worst}};
}

}  // namespace convoy::cli
