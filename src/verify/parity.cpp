#include "verify/parity.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/machine.hpp"
#include "math/half.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "verify/error_bound.hpp"

namespace convoy::verify {
namespace {

using reference::Oracle;
using reference::Outputs;
using reference::Sum;

// An output of which samples are taken: a window of an image.
struct Sample {
  Index n = 0, i = 0, j = 0;
};

// Corners, edges, and the rest at random: 20,000 outputs, all filters of a window together.
std::vector<Sample> draw_samples(const Stage& stage, const Shapes& shapes, std::uint64_t seed) {
  Random random(seed);
  const Index last_i = shapes.out_h - 1, last_j = shapes.out_w - 1, last_n = stage.n - 1;
  std::vector<Sample> samples;
  for (Index n : {Index{0}, last_n})
    for (Index i : {Index{0}, last_i})
      for (Index j : {Index{0}, last_j}) samples.push_back({n, i, j});
  const auto any = [&](Index last) { return random.between(0, last); };
  for (int edge = 0; edge < 16; ++edge) {
    samples.push_back({any(last_n), edge % 2 ? 0 : last_i, any(last_j)});
    samples.push_back({any(last_n), any(last_i), edge % 2 ? 0 : last_j});
  }
  // Tiles begin at small multiples: both sides of some of those seams.
  for (Index step : {2, 3, 4, 6, 8, 12, 14, 16})
    for (Index side : {-1, 0}) {
      const Index i = any(last_i) / step * step + side, j = any(last_j) / step * step + side;
      samples.push_back(
          {any(last_n), std::clamp<Index>(i, 0, last_i), std::clamp<Index>(j, 0, last_j)});
    }
  const Index wanted = std::max<Index>(20'000 / (stage.k * stage.t), 64);
  for (Index i = 0; i < wanted; ++i) samples.push_back({any(last_n), any(last_i), any(last_j)});
  return samples;
}

std::vector<double> gather(const Oracle& oracle, const std::vector<Sample>& samples,
                           Threads& threads, Index values) {
  std::vector<double> y(samples.size() * static_cast<std::size_t>(values));
  threads.for_each(static_cast<Index>(samples.size()), [&](Index i, int) {
    const Sample& at = samples[static_cast<std::size_t>(i)];
    const auto window = oracle.window(at.n, at.i, at.j);
    std::copy(window.y.begin(), window.y.end(), y.begin() + i * values);
  });
  return y;
}

}  // namespace

// What the oracle says of one kind of data. Integers: `want` rounded. Real: `want` is y64,
// `magnitude` what the error of each output is measured against. Neurons on real data are judged by
// the rule for spikes.
struct StageParity::Expected {
  Data data;
  Inputs inputs;
  std::vector<Sample> samples;  // empty: everything was computed
  Outputs want, magnitude;      // of samples only y: [samples][T,K]
  double plain = 0;             // largest error of plain sequential fp32; 0: of too few outputs
};

StageParity::StageParity(const Stage& stage, std::uint64_t seed, Device device, Threads& threads)
    : stage_(reference::for_device(stage, device.kind)),
      shapes_(shapes_of(stage)),
      seed_(seed),
      device_(device),
      threads_(threads),
      guard_(device),
      other_guard_(device) {}
StageParity::~StageParity() = default;

std::vector<const Kernel*> fitting_kernels(const Chain& chain, const Machine& machine) {
  std::vector<const Kernel*> fitting;
  for (const Kernel* kernel : kernel_table())
    if (fits(*kernel, chain, machine)) fitting.push_back(kernel);
  return fitting;
}

namespace {

double largest_error(const Outputs& plain, const Outputs& real) {
  return std::max({largest_difference(plain.y, real.y), largest_difference(plain.pre, real.pre),
                   largest_difference(plain.act, real.act)});
}

// What plain fp32 is on a device: CPUs of the baseline may have no FMA.
bool has_fma(Device device) {
  return device.kind == DeviceKind::cuda || cpu_machine().isa != "scalar";
}

// The largest error is that of the few outputs whose partial sums happen to grow largest: two
// orders of the same products may differ by a factor of two, and so may two draws. Plain fp32 is
// therefore summed six times, in the orders c, r, s and r, s, c, each from its first product on and
// from the middle, and once each of another draw; fewer times where that would take long.
struct PlainRun {
  std::uint64_t draw = 0;  // 0: what the kernels are judged by
  reference::Sequence sequence;
};
std::vector<PlainRun> plain_runs(const Stage& stage, const Shapes& shapes, bool fma) {
  const Index middle = stage.c / stage.groups * stage.r * stage.s / 2;
  std::vector<PlainRun> runs{{0, {false, 0, fma}},      {0, {true, 0, fma}},
                             {0, {false, middle, fma}}, {0, {true, middle, fma}},
                             {1, {false, 0, fma}},      {2, {true, 0, fma}}};
  const Index affordable = 200'000'000 / std::max<Index>(shapes.macs, 1);
  runs.resize(static_cast<std::size_t>(std::clamp<Index>(affordable, 2, 6)));
  return runs;
}

// Of fewer outputs the largest error of plain fp32 varies too much from draw to draw.
constexpr Index enough_outputs = 4096;

}  // namespace

const StageParity::Expected* StageParity::expected(Data data) {
  auto& slot = expected_[static_cast<std::size_t>(data)];
  if (slot) return slot.get();
  auto inputs = draw_inputs(stage_, data, seed_);
  if (!inputs) return nullptr;
  slot = std::make_unique<Expected>(Expected{data, std::move(*inputs), {}, {}, {}});
  Expected& e = *slot;
  const Operands operands = e.inputs.operands();
  const bool extra = data == Data::mean10 || data == Data::scaled;
  if (shapes_.macs > sample_above_macs / stage_.t / (extra ? 20 : 1) ||
      shapes_.pre_elements > sample_above_outputs)
    e.samples = draw_samples(stage_, shapes_, seed_);
  const auto compute_of = [&](const Inputs& drawn, const Operands& of, Sum sum,
                              reference::Sequence sequence = {}) {
    const Oracle oracle(stage_, drawn.weights, of, sum, sequence);
    if (e.samples.empty()) return oracle.all(threads_);
    Outputs sampled;
    sampled.y = gather(oracle, e.samples, threads_, stage_.t * stage_.k);
    return sampled;
  };
  const auto compute = [&](Sum sum) { return compute_of(e.inputs, operands, sum); };
  if (data == Data::integers) {
    e.want = compute(Sum::exact);
  } else if (!stage_.act.is_neuron()) {
    e.want = compute(Sum::real);
    e.magnitude = compute(Sum::magnitude);
    if (shapes_.pre_elements >= enough_outputs)
      for (const auto& [draw, sequence] : plain_runs(stage_, shapes_, has_fma(device_))) {
        std::optional<Inputs> other;
        if (draw > 0) other = draw_inputs(stage_, data, seed_ + (draw << 32));
        const Inputs& drawn = other ? *other : e.inputs;
        const Operands of = drawn.operands();
        const Outputs real = other ? compute_of(drawn, of, Sum::real) : Outputs{};
        const Outputs plain = compute_of(drawn, of, Sum::sequential, sequence);
        e.plain = std::max(e.plain, largest_error(plain, other ? real : e.want));
      }
  }
  return &e;
}

PlanOptions options_of(const Kernel& kernel, const Tile& tile, const Chain& chain, Device device,
                       int threads) {
  PlanOptions options;
  options.device = device;
  options.threads = threads;
  options.all_threads = true;
  options.kernel = kernel.name();
  options.use_tuning = false;
  // Runs are on two streams, each of which keeps a workspace.
  if (device.kind == DeviceKind::cuda) options.concurrent_runs = 2;
  const std::vector<Tile> tiles = kernel.tiles(chain, machine_for(options));
  if (std::find(tiles.begin(), tiles.end(), tile) != tiles.end()) options.tile = tile.name;
  return options;
}

Plan StageParity::plan(const Kernel& kernel, const Tile& tile, Index n, int threads) const {
  Stage stage = stage_;
  stage.n = n;
  return Plan(stage, options_of(kernel, tile, stage, device_, threads));
}

std::vector<std::string> StageParity::check(const Kernel& kernel, const Tile& tile, bool thorough,
                                            Tally& tally) {
  std::vector<std::string> failures;
  const auto fail = [&](std::string_view what, const std::string& why) {
    if (!why.empty()) failures.push_back(fmt::format("{}: {}", what, why));
    return !why.empty();
  };
  Plan one = plan(kernel, tile, stage_.n, 1);
  std::optional<Plan> two;
  if (!on_gpu()) two.emplace(plan(kernel, tile, stage_.n, 2));
  const auto run = [&](const Expected& e) {
    one.set_weights(e.inputs.weights, guard_.stream());
    ++tally.runs;
    return guard_.run(one, e.inputs, Views::dense);
  };
  // With two threads, or on another stream.
  const auto judge_views = [&](std::string_view what, const Expected& e) {
    std::vector<std::pair<Views, std::string_view>> kinds{{Views::strided, "strided"}};
    if (on_gpu()) kinds.emplace_back(Views::aligned, "aligned, strided");
    Plan& on = two ? *two : one;
    on.set_weights(e.inputs.weights, other_guard_.stream());
    for (const auto& [views, text] : kinds) {
      ++tally.runs;
      const Result got = other_guard_.run(on, e.inputs, views);
      if (got.refused && on_gpu())
        ++tally.refused;
      else
        fail(fmt::format("{}, {} views", what, text), judge(e, got, kernel, tally));
    }
  };

  if (kernel.exact()) {
    if (const Expected* e = expected(Data::integers)) {
      fail("(a) integers, dense views", judge(*e, run(*e), kernel, tally));
      judge_views("(a, e) integers", *e);
    }
  }

  if (thorough && stage_.dtype != DType::u8 && !stage_.act.is_neuron())
    for (const Data data : {Data::mean10, Data::scaled}) {
      const Expected& e = *expected(data);
      fail(fmt::format("(b) {}", name(data)), judge(e, run(e), kernel, tally));
    }
  const Expected& normal = *expected(Data::normal);
  const Result got = run(normal);
  if (!fail("(b) normal", judge(normal, got, kernel, tally))) {
    if (!kernel.exact()) judge_views("(e) normal", normal);
    const auto [first, is_new] = bits_.try_emplace(std::string(kernel.arithmetic()), got.y);
    if (!is_new)
      fail(fmt::format("(d) bits of arithmetic \"{}\", which another kernel or tile has too",
                       kernel.arithmetic()),
           compare_bits("y", got.y, first->second, {}));
  }
  if (thorough) {
    if (two) two->set_weights(normal.inputs.weights);
    fail("(d)", check_repeats(kernel, tile, one, two ? &*two : nullptr, normal.inputs, got, tally));
  }
  return failures;
}

// The same bits once more, with other threads or on another stream, with fewer images than planned
// for, and in batches of 7 and 64.
std::string StageParity::check_repeats(const Kernel& kernel, const Tile& tile, const Plan& one,
                                       const Plan* two, const Inputs& inputs, const Result& base,
                                       Tally& tally) {
  const auto same = [&](std::string_view what, const Plan& on, Index first, Index n, Guard& guard) {
    std::optional<Inputs> batch;
    if (first != 0 || n != stage_.n) batch = repeat_images(inputs, first, n);
    ++tally.runs;
    const Result got = guard.run(on, batch ? *batch : inputs, Views::dense);
    if (!got.error.empty()) return fmt::format("{}: {}", what, got.error);
    const auto images = [&](const std::vector<float>& part, const std::vector<float>& whole,
                            Index parts) {
      return compare_images(part, n, whole, stage_.n, first, parts);
    };
    std::string why = images(got.y, base.y, stage_.t);
    if (why.empty() && !got.pre.empty()) why = images(got.pre, base.pre, stage_.t);
    if (why.empty() && !got.act.empty()) why = images(got.act, base.act, stage_.t);
    if (why.empty() && !got.membrane.empty()) why = images(got.membrane, base.membrane, 1);
    return why.empty() ? why : fmt::format("{}: {}", what, why);
  };
  if (!base.error.empty()) return base.error;
  std::string why = same("a second run", one, 0, stage_.n, guard_);
  if (why.empty())
    why = two ? same("two threads", *two, 0, stage_.n, guard_)
              : same("another stream", one, 0, stage_.n, other_guard_);
  if (why.empty()) why = same("the last image alone", one, stage_.n - 1, 1, guard_);
  const auto same_by_another = [&](std::string_view what, Index n, int threads) {
    Plan fresh = plan(kernel, tile, n, threads);
    fresh.set_weights(inputs.weights, guard_.stream());
    return same(what, fresh, 0, n, guard_);
  };
  const Index work = shapes_.macs + shapes_.x_elements + shapes_.pre_elements;
  for (const int threads : more_threads)
    if (why.empty() && !on_gpu() && work < most_work_of_threads)
      why = same_by_another(fmt::format("{} threads", threads), stage_.n, threads);
  for (const Index n : {7, 64})
    if (why.empty() && work / stage_.n * n < most_work_of_batch)
      why = same_by_another(fmt::format("a batch of {}", n), n, 2);
  return why;
}

std::string StageParity::judge(const Expected& want, const Result& got, const Kernel& kernel,
                               Tally& tally) {
  if (!got.error.empty()) return got.error;
  tally.outputs += static_cast<Index>(want.samples.empty() ? got.y.size() : want.want.y.size());
  if (!want.samples.empty()) return judge_samples(want, got, kernel, tally);
  if (want.data != Data::integers) {
    if (stage_.act.is_neuron()) return compare_spikes(want.inputs, got, tally.spikes);
    return judge_real(want, got, kernel, tally);
  }
  Stage nhwc = stage_;
  nhwc.layout = Layout::nhwc;
  const std::vector<Index> y = y_shape(nhwc), pre = pre_shape(nhwc);
  std::string why = compare_exact("y", got.y, want.want.y, y);
  if (why.empty() && stage_.keep.pre) why = compare_exact("pre", got.pre, want.want.pre, pre);
  if (why.empty() && stage_.keep.act) why = compare_exact("act", got.act, want.want.act, pre);
  if (why.empty() && stage_.keep.idx) why = compare_exact("idx", got.idx, want.want.idx, y);
  if (why.empty() && stage_.act.is_neuron())
    why = compare_exact("membrane_out", got.membrane, want.want.membrane, membrane_shape(stage_));
  return why;
}

std::string StageParity::judge_real(const Expected& want, const Result& got, const Kernel& kernel,
                                    Tally& tally) {
  Stage nhwc = stage_;
  nhwc.layout = Layout::nhwc;
  const std::vector<Index> y = y_shape(nhwc), pre = pre_shape(nhwc);
  const double roundoff = kernel.facts().sum_roundoff;
  const auto check = [&](std::string_view what, const std::vector<float>& values,
                         const std::vector<double>& real, const std::vector<double>& magnitude,
                         const std::vector<Index>& shape) {
    return compare_real(what, stage_, values, real, magnitude, shape, {roundoff, 1});
  };
  std::string why = check("y", got.y, want.want.y, want.magnitude.y, y);
  if (why.empty() && stage_.keep.pre)
    why = check("pre", got.pre, want.want.pre, want.magnitude.pre, pre);
  if (why.empty() && stage_.keep.act)
    why = check("act", got.act, want.want.act, want.magnitude.act, pre);
  if (why.empty()) why = judge_largest("y", want, got.y, want.want.y, kernel, tally);
  if (why.empty() && stage_.keep.pre)
    why = judge_largest("pre", want, got.pre, want.want.pre, kernel, tally);
  if (why.empty() && stage_.keep.act)
    why = judge_largest("act", want, got.act, want.want.act, kernel, tally);
  if (why.empty() && stage_.keep.idx) {
    // Rounding may move the maximum: what idx points at must be as large, within the bound.
    std::vector<float> pointed(got.idx.size());
    const Index plane = shapes_.p * shapes_.q, windows = shapes_.out_h * shapes_.out_w;
    for (std::size_t i = 0; i < pointed.size(); ++i) {
      const Index k = static_cast<Index>(i) % stage_.k;
      const Index n = static_cast<Index>(i) / stage_.k / windows;
      pointed[i] = got.y[i];
      if (got.y[i] == -std::numeric_limits<float>::infinity()) continue;  // a window of padding
      if (got.idx[i] < 0 || got.idx[i] >= plane)
        return fmt::format("idx at {}: {}, expected 0 to {}", position(i, y), got.idx[i],
                           plane - 1);
      pointed[i] = static_cast<float>(
          want.want.act[static_cast<std::size_t>((n * plane + got.idx[i]) * stage_.k + k)]);
    }
    // Of two values that both are off.
    why = compare_real("the value at idx", stage_, pointed, want.want.y, want.magnitude.y, y,
                       {roundoff, 2});
  }
  return why;
}

// The promise: the largest error is at most twice that of plain fp32, of enough outputs.
std::string StageParity::judge_largest(std::string_view what, const Expected& want,
                                       const std::vector<float>& got,
                                       const std::vector<double>& real, const Kernel& kernel,
                                       Tally& tally) const {
  if (want.plain == 0) return {};
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isfinite(real[i]) && std::isfinite(got[i]))  // it may be beyond the output's type
      error = std::max(error, std::abs(static_cast<double>(got[i]) - real[i]));
  // Not less than one unit in the last place of the largest value.
  const double largest_value = std::max({1.0, largest(real), largest(want.want.pre)});
  const double allowed = kernel.facts().error_bound * want.plain;
  if (allowed >= 0x1p-23 * largest_value && error / want.plain > tally.worst) {
    tally.worst = error / want.plain;
    tally.worst_at = fmt::format("{} by {}, {}", to_text(stage_), kernel.name(), name(want.data));
  }
  if (error <= std::max(allowed, 0x1p-23 * largest_value)) return {};
  return fmt::format(
      "the largest error of {} is {:.3g}, {:.2f} times that of plain fp32; {} allowed", what, error,
      error / want.plain, kernel.facts().error_bound);
}

std::string StageParity::judge_samples(const Expected& want, const Result& got,
                                       const Kernel& kernel, Tally& tally) const {
  const bool exact = want.data == Data::integers;
  if (!exact && stage_.act.is_neuron()) return {};  // integers judged its spikes
  std::vector<float> y;
  for (const Sample& at : want.samples)
    for (Index t = 0; t < stage_.t; ++t)
      for (Index k = 0; k < stage_.k; ++k)
        y.push_back(got.y[static_cast<std::size_t>(
            (((t * stage_.n + at.n) * shapes_.out_h + at.i) * shapes_.out_w + at.j) * stage_.k +
            k)]);
  const std::vector<Index> shape{static_cast<Index>(want.samples.size()), stage_.t, stage_.k};
  if (exact) return compare_exact("y, sampled", y, want.want.y, shape);
  std::string why = compare_real("y, sampled", stage_, y, want.want.y, want.magnitude.y, shape,
                                 {kernel.facts().sum_roundoff, 1});
  return why.empty() ? judge_largest("y", want, y, want.want.y, kernel, tally) : why;
}

}  // namespace convoy::verify
