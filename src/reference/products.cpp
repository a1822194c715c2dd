#include "reference/products.hpp"

namespace convoy::reference {
namespace {

template <Rounding rounding>
void add(std::span<const Tap> taps, Index groups, Sequence sequence, std::span<double> sums) {
  const Index k = static_cast<Index>(sums.size()), k_group = k / groups;
  const Index area = static_cast<Index>(taps.size());
  const Index c_group = static_cast<Index>(taps.front().weights.size()) / k;
  const auto add_tap = [&](const Tap& tap, Index c) {
    if (tap.x.empty()) return;
    const float* w = tap.weights.data() + c * k;
    const double* x = tap.x.data() + c;
    double* sum = sums.data();
    for (Index group = 0; group < groups; ++group, x += c_group, w += k_group, sum += k_group)
      for (Index i = 0; i < k_group; ++i) {
        if constexpr (rounding == Rounding::none)
          sum[i] += *x * w[i];
        else if constexpr (rounding == Rounding::sums)
          sum[i] = static_cast<float>(sum[i] + *x * w[i]);
        else
          sum[i] = static_cast<float>(sum[i] + static_cast<float>(*x * w[i]));
      }
  };

  const Index inner = sequence.channels_last ? c_group : area;
  const Index outer = sequence.channels_last ? area : c_group;
  Index i = sequence.first / inner, j = sequence.first % inner;
  for (Index left = inner * outer; left > 0; --left) {
    add_tap(taps.data()[sequence.channels_last ? i : j], sequence.channels_last ? j : i);
    if (++j < inner) continue;
    j = 0;
    if (++i == outer) i = 0;
  }
}

}  // namespace

void add_products(std::span<const Tap> taps, Index groups, Sequence sequence, Rounding rounding,
                  std::span<double> sums) {
  switch (rounding) {
    case Rounding::none:
      return add<Rounding::none>(taps, groups, sequence, sums);
    case Rounding::sums:
      return add<Rounding::sums>(taps, groups, sequence, sums);
    case Rounding::both:
      return add<Rounding::both>(taps, groups, sequence, sums);
  }
}

}  // namespace convoy::reference
