#include "verify/compare.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "math/pool.hpp"

namespace convoy::verify {
namespace {

// Counts what differs and describes the first.
template <class Got, class Want, class Same>
std::string compare(std::string_view what, const std::vector<Got>& got,
                    const std::vector<Want>& want, const std::vector<Index>& shape, Same&& same) {
  if (got.size() != want.size())
    return fmt::format("{}: {} elements, expected {}", what, got.size(), want.size());
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same(got[i], want[i]) && wrong++ == 0) first = i;
  if (wrong == 0) return {};
  return fmt::format("{}: {} of {} differ, the first at {}: {}, expected {}", what, wrong,
                     got.size(), position(first, shape), got[first], want[first]);
}

}  // namespace

std::string position(std::size_t at, const std::vector<Index>& shape) {
  std::vector<Index> axes(shape.size());
  auto rest = static_cast<Index>(at);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    axes[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(axes, ","));
}

std::string compare_exact(std::string_view what, const std::vector<float>& got,
                          const std::vector<double>& want, const std::vector<Index>& shape) {
  return compare(what, got, want, shape,
                 [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
}
std::string compare_exact(std::string_view what, const std::vector<std::int32_t>& got,
                          const std::vector<std::int32_t>& want, const std::vector<Index>& shape) {
  return compare(what, got, want, shape, [](std::int32_t a, std::int32_t b) { return a == b; });
}
std::string compare_bits(std::string_view what, const std::vector<float>& got,
                         const std::vector<float>& want, const std::vector<Index>& shape) {
  if (got.size() == want.size() &&
      std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0)
    return {};
  return compare(what, got, want, shape,
                 [](float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; });
}
std::string compare_images(const std::vector<float>& part, Index n, const std::vector<float>& whole,
                           Index images, Index first, Index steps) {
  const std::size_t image = part.size() / static_cast<std::size_t>(steps * n);
  for (Index t = 0; t < steps; ++t)
    for (Index i = 0; i < n; ++i) {
      const auto from = static_cast<std::size_t>(t * images + (first + i) % images);
      const auto to = static_cast<std::size_t>(t * n + i);
      if (std::memcmp(&part[to * image], &whole[from * image], image * sizeof(float)) != 0)
        return fmt::format("image {} of {} has other bits", i, n);
    }
  return {};
}
std::string compare_close(std::string_view what, const std::vector<float>& got,
                          const std::vector<double>& want, double most,
                          const std::vector<Index>& shape) {
  return compare(fmt::format("{} (may differ by {:.3g})", what, most), got, want, shape,
                 [&](double a, double b) {
                   if (std::isnan(b)) return std::isnan(a);
                   return a == b || std::abs(a - b) <= most;  // a NaN fails
                 });
}

std::string compare_close(std::string_view what, const std::vector<float>& got,
                          const std::vector<double>& want, const std::vector<double>& most,
                          const std::vector<Index>& shape) {
  if (got.size() != want.size() || got.size() != most.size())
    return fmt::format("{}: {} elements, expected {}", what, got.size(), want.size());
  const auto close = [&](std::size_t i) {
    if (std::isnan(want[i])) return std::isnan(got[i]);
    // A NaN fails.
    return static_cast<double>(got[i]) == want[i] || std::abs(got[i] - want[i]) <= most[i];
  };
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!close(i) && wrong++ == 0) first = i;
  if (wrong == 0) return {};
  return fmt::format("{}: {} of {} differ, the first at {}: {}, expected {}, may differ by {:.3g}",
                     what, wrong, got.size(), position(first, shape), got[first], want[first],
                     most[first]);
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values)
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  return most;
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

namespace {

// Follows every neuron of a stage through its steps, in double.
class SpikeJudge {
 public:
  SpikeJudge(const Inputs& inputs, const Result& result, SpikeCount& count)
      : stage_(inputs.stage),
        oracle_(stage_, inputs.weights, inputs.operands(), reference::Sum::real),
        inputs_(inputs),
        result_(result),
        count_(count),
        shapes_(oracle_.shapes()),
        margin_(reference::spike_margin(stage_.act.threshold())),
        neurons_(stage_.n * shapes_.p * shapes_.q * stage_.k) {}

  std::string judge() {
    const auto count = static_cast<std::size_t>(neurons_);
    membrane_.assign(count, 0.0);
    doubtful_.assign(count, false);
    fired_.assign(count, false);
    for (std::size_t i = 0; inputs_.membrane_in.view() && i < count; ++i)
      membrane_[i] = inputs_.membrane_in.data<float>()[i];
    for (Index t = 0; t < stage_.t; ++t) {
      std::string error = charge(t);
      if (error.empty() && stage_.pool) error = judge_windows(t);
      if (!error.empty()) return fmt::format("step {}: {}", t, error);
    }
    return judge_membranes();
  }

 private:
  bool each_spike_known() const { return !stage_.pool || stage_.keep.act; }

  // One step of every neuron; judges each spike where all are known.
  std::string charge(Index t) {
    std::vector<double> sums(static_cast<std::size_t>(stage_.k));
    const std::vector<float>& spikes = stage_.keep.act ? result_.act : result_.y;
    const double threshold = stage_.act.threshold();
    std::size_t i = 0;
    for (Index n = 0; n < stage_.n; ++n)
      for (Index p = 0; p < shapes_.p; ++p)
        for (Index q = 0; q < shapes_.q; ++q) {
          oracle_.convolve(stage_.hold ? 0 : t, {n, p, q}, sums);
          for (Index k = 0; k < stage_.k; ++k, ++i) {
            double x = sums[static_cast<std::size_t>(k)];
            if (stage_.bias) x += inputs_.bias.data<float>()[k];
            double& v = membrane_[i];
            v = stage_.act.kind == Activation::Kind::lif
                    ? v + (x - v) / static_cast<double>(stage_.act.tau())
                    : v + x;
            if (stage_.keep.pre) {
              const double pre = result_.pre[static_cast<std::size_t>(t * neurons_) + i];
              const double slack = stage_.output_dtype() == DType::f32 ? 0 : std::abs(v) / 128;
              if (!doubtful_[i] && std::abs(pre - v) > tolerance(v) + slack)
                return fmt::format("pre at {}: {}, expected {}", where(i), pre, v);
            }
            bool fires = v >= threshold;
            const bool near = std::abs(v - threshold) <= margin_;
            if (each_spike_known()) {
              const float spike = spikes[static_cast<std::size_t>(t * neurons_) + i];
              if (spike != 0 && spike != 1)
                return fmt::format("spike at {} is {}", where(i), spike);
              if ((spike != 0) != fires) {
                if (!near)
                  return fmt::format(
                      "spike at {}: {}, but the reference's membrane is {} with the "
                      "threshold at {}",
                      where(i), spike, v, threshold);
                ++count_.excused;
              }
              fires = spike != 0;
            } else if (near) {
              doubtful_[i] = true;
            }
            count_.spikes += fires;
            fired_[i] = fires;
            if (fires) v = stage_.soft ? v - threshold : 0;
          }
        }
    return {};
  }

  std::string judge_windows(Index t) {
    const math::PoolAxis rows = math::pool_rows(stage_, shapes_.p);
    const math::PoolAxis columns = math::pool_columns(stage_, shapes_.q);
    const Index per_step = stage_.n * shapes_.out_h * shapes_.out_w * stage_.k;
    for (Index i = 0; i < per_step; ++i) {
      const Index k = i % stage_.k, col = i / stage_.k % shapes_.out_w;
      const Index row = i / stage_.k / shapes_.out_w % shapes_.out_h;
      const Index n = i / stage_.k / shapes_.out_w / shapes_.out_h;
      bool any = false, fires = false, doubtful = false;
      for (Index p = rows.begin(row); p < rows.end(row); p += rows.dil)
        for (Index q = columns.begin(col); q < columns.end(col); q += columns.dil) {
          const auto at =
              static_cast<std::size_t>(((n * shapes_.p + p) * shapes_.q + q) * stage_.k + k);
          any = true;
          doubtful = doubtful || doubtful_[at];
          fires = fires || (fired_[at] && !doubtful_[at]);
        }
      const float spike = result_.y[static_cast<std::size_t>(t * per_step + i)];
      if (!any && std::isinf(spike) && spike < 0) continue;  // a window of padding
      if ((spike != 0 && spike != 1) || !any)
        return fmt::format("pooled spike of image {} at [{},{},{}] is {}", n, row, col, k, spike);
      if ((spike != 0) == fires) continue;
      if (!doubtful || (fires && spike == 0))
        return fmt::format("pooled spike of image {} at [{},{},{}]: {}, expected {}", n, row, col,
                           k, spike, fires ? 1 : 0);
      ++count_.excused;
    }
    return {};
  }

  std::string judge_membranes() const {
    if (result_.membrane.empty()) return {};  // a chain keeps none
    for (std::size_t i = 0; i < membrane_.size(); ++i)
      if (!doubtful_[i] &&
          !(std::abs(result_.membrane[i] - membrane_[i]) <= tolerance(membrane_[i])))
        return fmt::format("membrane_out at {}: {}, expected {}", where(i), result_.membrane[i],
                           membrane_[i]);
    return {};
  }

  double tolerance(double v) const {
    return margin_ * static_cast<double>(stage_.t) * std::max(1.0, std::abs(v));
  }
  std::string where(std::size_t i) const {
    return position(i, {stage_.n, shapes_.p, shapes_.q, stage_.k});
  }

  const Stage& stage_;
  reference::Oracle oracle_;
  const Inputs& inputs_;
  const Result& result_;
  SpikeCount& count_;
  const Shapes& shapes_;
  double margin_;
  Index neurons_;
  std::vector<double> membrane_;
  std::vector<bool> fired_, doubtful_;
};

}  // namespace

std::string compare_spikes(const Inputs& inputs, const Result& result, SpikeCount& count) {
  return SpikeJudge(inputs, result, count).judge();
}

}  // namespace convoy::verify
