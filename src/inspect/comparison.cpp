#include "inspect/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "math/pool.hpp"
#include "reference/reference.hpp"

namespace convoy::inspect {
namespace {

/// Alike for any tolerance: equal, or both NaN.
bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

double largest_finite(std::span<const float> values) {
  double largest = 0;
  for (const float value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

/// The least distance of a membrane from the threshold in steps up to that of the element, over the
/// window of the pool that it comes from.
double distance_of(const SpikeRule& rule, const std::vector<Index>& place,
                   const std::vector<Index>& shape) {
  const Stage& s = rule.stage;
  const math::PoolAxis rows = math::pool_rows(s, s.h), columns = math::pool_columns(s, s.w);
  double least = std::numeric_limits<double>::infinity();
  for (Index t = 0; t <= place[0]; ++t)
    for (Index p = rows.begin(place[2]); p < rows.end(place[2]); p += rows.dil)
      for (Index q = columns.begin(place[3]); q < columns.end(place[3]); q += columns.dil) {
        const Index at = (((t * shape[1] + place[1]) * s.h + p) * s.w + q) * s.c + place[4];
        const double membrane = static_cast<double>(rule.membrane[static_cast<std::size_t>(at)]);
        least = std::min(least, std::abs(membrane - rule.threshold));
      }
  return least;
}

bool is_spike(float value) {
  return value == 0 || value == 1;
}

}  // namespace

double SpikeRule::near() const {
  return reference::spike_margin(threshold);
}

std::vector<Index> coordinates(std::size_t at, const std::vector<Index>& shape) {
  std::vector<Index> place(shape.size());
  auto rest = static_cast<Index>(at);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return place;
}

Comparison compare(std::span<const float> got, std::span<const float> expected,
                   const std::vector<Index>& shape, const Tolerance& tolerance,
                   const SpikeRule* spikes, std::size_t most_worst) {
  Comparison result;
  result.values = got.size();
  result.largest = largest_finite(expected);
  const double bound = spikes ? 0 : tolerance.absolute + tolerance.relative * result.largest;
  struct Found {
    Difference difference;
    bool off;
  };
  std::vector<Found> found;
  double sum = 0;
  std::size_t finite = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool both_finite = std::isfinite(got[i]) && std::isfinite(expected[i]);
    finite += both_finite;
    if (same(got[i], expected[i])) continue;
    Found one{{.at = i, .got = got[i], .expected = expected[i]}, true};
    Difference& difference = one.difference;
    difference.error = std::numeric_limits<double>::infinity();
    if (both_finite) {
      difference.error = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
      sum += difference.error;
      result.max_error = std::max(result.max_error, difference.error);
    }
    if (spikes && !spikes->membrane.empty())
      difference.distance = distance_of(*spikes, coordinates(i, shape), shape);
    const bool excused = spikes && is_spike(got[i]) && difference.distance >= 0 &&
                         difference.distance <= spikes->near();
    one.off = !excused && !(difference.error <= bound);
    result.excused += excused;
    result.not_finite += !both_finite;
    if (one.off && result.off++ == 0) result.first = difference;
    found.push_back(one);
  }
  if (finite > 0) result.mean_error = sum / static_cast<double>(finite);
  if (result.max_error > 0)
    result.relative_error = result.largest > 0 ? result.max_error / result.largest
                                               : std::numeric_limits<double>::infinity();
  const auto kept = found.begin() + static_cast<std::ptrdiff_t>(std::min(most_worst, found.size()));
  std::partial_sort(found.begin(), kept, found.end(), [](const Found& a, const Found& b) {
    if (a.off != b.off) return a.off;
    if (a.difference.error != b.difference.error) return a.difference.error > b.difference.error;
    return a.difference.at < b.difference.at;
  });
  for (auto one = found.begin(); one != kept; ++one) result.worst.push_back(one->difference);
  return result;
}

bool agrees_channels_first(std::span<const float> got, std::span<const float> expected,
                           const std::vector<Index>& shape, const Tolerance& tolerance) {
  const double bound = tolerance.absolute + tolerance.relative * largest_finite(expected);
  const Index pixels = shape[2] * shape[3], channels = shape[4];
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto at = static_cast<Index>(i);
    const Index channel = at % channels, pixel = at / channels % pixels,
                image = at / channels / pixels;
    const float other =
        got[static_cast<std::size_t>((image * channels + channel) * pixels + pixel)];
    const double error = std::abs(static_cast<double>(other) - static_cast<double>(expected[i]));
    if (!same(other, expected[i]) && !(error <= bound)) return false;
  }
  return true;
}

}  // namespace convoy::inspect
