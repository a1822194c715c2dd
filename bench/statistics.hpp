// What is said of a set of timings. Everything here is in the unit of the samples.
#pragma once

#include <algorithm>
#include <vector>

namespace convoy::bench {

/// Value below which a share of the samples lies, interpolated; 0 for none.
inline double quantile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (samples[above] - samples[below]) * (place - static_cast<double>(below));
}
inline double median(const std::vector<double>& samples) {
  return quantile(samples, 0.5);
}

/// Half of the samples lie in a band this wide, relative to the median.
inline double spread(const std::vector<double>& samples) {
  const double middle = median(samples);
  return middle > 0 ? (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle : 0;
}

}  // namespace convoy::bench
