#include "verify/chain_parity.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/gpu.hpp"
#include "math/half.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "verify/error_bound.hpp"
#include "verify/exact_sums.hpp"

namespace convoy::verify {
namespace {

using reference::Oracle;
using reference::Sum;

double work_of(const std::vector<Stage>& stages) {
  double work = 0;
  for (const Stage& stage : stages) {
    const Shapes shapes = shapes_of(stage);
    work += static_cast<double>(shapes.macs) * static_cast<double>(stage.t) +
            static_cast<double>(shapes.x_elements) + static_cast<double>(shapes.pre_elements);
  }
  return work;
}

// Kernels of that arithmetic that run each stage by itself; empty: some stage has none.
std::vector<const Kernel*> kernels_alone(const Kernel& of, const std::vector<Stage>& stages,
                                         const Machine& machine) {
  std::vector<const Kernel*> found;
  for (const Stage& stage : stages)
    for (const Kernel* kernel : kernel_table())
      if (!is_for_chains(*kernel) && kernel->arithmetic() == of.arithmetic() &&
          fits(*kernel, stage, machine)) {
        found.push_back(kernel);
        break;
      }
  if (found.size() != stages.size()) found.clear();
  return found;
}

Index steps_of(const Chain& chain, const std::vector<Stage>& stages) {
  const Stage& last = stages.back();
  return last.act.is_neuron() ? last.t : last.n / chain.back().n;
}

}  // namespace

ChainParity::ChainParity(const Chain& chain, std::uint64_t seed, Device device, Threads& threads)
    : chain_(chain),
      stages_((convoy::check(chain, device.kind == DeviceKind::cuda), stages_alone(chain))),
      seed_(seed),
      device_(device),
      threads_(threads),
      guard_(device),
      other_guard_(device) {
  if (!affordable(chain))
    throw Error(
        fmt::format("verify: {} takes {:.3g} multiply-adds, expected at most {:.3g}: the oracle "
                    "computes the whole chain. Use fewer images (--images).",
                    to_text(chain_), work_of(stages_), static_cast<double>(sample_above_macs)));
}

bool ChainParity::affordable(const Chain& chain) {
  return work_of(stages_alone(chain)) <= static_cast<double>(sample_above_macs);
}

Inputs ChainParity::alone(const ChainInputs& inputs, std::size_t i, Tensor x) const {
  Inputs in;
  in.stage = reference::for_device(stages_[i], device_.kind);
  if (i > 0) in.stage.layout = Layout::nhwc;
  in.stage.dtype = x.view().dtype;
  in.x = std::move(x);
  in.weights = inputs.weights[i].clone();
  if (in.stage.bias) in.bias = inputs.bias[i].clone();
  return in;
}

template <class T>
Tensor ChainParity::next_x(std::size_t i, const std::vector<T>& y) const {
  Stage next = stages_[i + 1];
  next.layout = Layout::nhwc;
  Tensor x(next.dtype, x_shape(next));
  for (std::size_t j = 0; j < y.size(); ++j)
    math::store(next.dtype, x.view().data, static_cast<Index>(j), static_cast<float>(y[j]));
  return x;
}

std::vector<double> ChainParity::mean_of(const std::vector<double>& y) const {
  const auto steps = static_cast<std::size_t>(steps_of(chain_, stages_));
  std::vector<double> mean(y.size() / steps);
  for (std::size_t i = 0; i < y.size(); ++i) mean[i % mean.size()] += y[i];
  for (double& sum : mean) sum /= static_cast<double>(steps);
  return mean;
}

std::optional<ChainParity::Expected> ChainParity::sum_exactly(ChainInputs inputs) const {
  Expected expected{std::move(inputs), {}};
  // Sums of pixels are of integers up to 255 where their values lie on a line.
  Index times = expected.inputs.values.view() ? 512 : 1;
  Tensor x = expected.inputs.plain_x();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const bool last = i + 1 == stages_.size();
    const Inputs in = alone(expected.inputs, i, std::move(x));
    if (last && chain_.mean) times *= steps_of(chain_, stages_);
    if (!sums_are_exact(in, times, threads_)) return {};
    times = 1;
    auto y = Oracle(in.stage, in.weights, in.operands(), Sum::exact).all(threads_).y;
    x = last ? Tensor() : next_x(i, y);
    expected.y.push_back(last && chain_.mean ? mean_of(y) : std::move(y));
  }
  // The sum of the mean is exact; it is divided in fp32.
  for (double& value : expected.y.back()) value = static_cast<float>(value);
  return expected;
}

std::unique_ptr<Bound> ChainParity::bind(const Kernel& kernel, const Tile& tile, Index n,
                                         int threads) const {
  const OwnedChain chain = with_images(chain_, n);
  const PlanOptions options = options_of(kernel, tile, chain, device_, threads);
  Selection selection;
  selection.verdicts.emplace_back().kernel = &kernel;
  const std::vector<RankedTile> ranked = rank(kernel, chain, machine_for(options));
  const auto asked = std::find_if(ranked.begin(), ranked.end(), [&](const RankedTile& one) {
    return one.tile.name == options.tile;
  });
  selection.tile = asked == ranked.end() ? ranked.front() : *asked;
  return std::make_unique<Bound>(chain, options, std::move(selection));
}

std::vector<std::string> ChainParity::check(const Kernel& kernel, const Tile& tile, bool thorough,
                                            Tally& tally) {
  std::vector<std::string> failures;
  const auto fail = [&](std::string_view what, const std::string& why) {
    if (!why.empty()) failures.push_back(fmt::format("{}: {}", what, why));
    return !why.empty();
  };
  const bool inner = kernel.facts().keeps_inner;
  const auto one = bind(kernel, tile, stages_.front().n, 1);
  const auto run = [&](const ChainInputs& inputs) {
    one->set(inputs.parameters(kernel.facts()));
    ++tally.runs;
    return guard_.run(*one, inputs, inner);
  };
  if (kernel.exact()) {
    if (!integers_) integers_ = sum_exactly(draw_inputs(chain_, Data::integers, seed_));
    if (integers_) fail("(a) integers", judge_exact(*integers_, run(integers_->inputs), tally));
    if (is_spiking() && !ties_) ties_ = sum_exactly(draw_ties(chain_, seed_));
    if (ties_) fail("(a) at thresholds", judge_exact(*ties_, run(ties_->inputs), tally));
  }
  const ChainInputs& normal =
      normal_ ? *normal_ : normal_.emplace(draw_inputs(chain_, Data::normal, seed_));
  const ChainResult got = run(normal);
  fail("(b) normal", judge_real(kernel, normal, got, tally));
  if (thorough) fail("(d)", check_repeats(kernel, tile, *one, normal, got, tally));
  return failures;
}

// The same bits once more, with other threads or on another stream, with fewer images than planned
// for, and in batches of 7 and 64.
std::string ChainParity::check_repeats(const Kernel& kernel, const Tile& tile, const Bound& one,
                                       const ChainInputs& inputs, const ChainResult& base,
                                       Tally& tally) {
  if (!base.error.empty()) return base.error;
  const Index images = chain_.stages.front().n;
  const Index steps = chain_.mean ? 1 : steps_of(chain_, stages_);
  const auto same = [&](std::string_view what, const Bound& on, Index first, Index n,
                        ChainGuard& guard) {
    ++tally.runs;
    const ChainResult got = guard.run(on, repeat_images(inputs, first, n), false);
    std::string why = got.error.empty() ? judge_labels(got) : got.error;
    if (why.empty()) why = compare_images(got.y, n, base.y, images, first, steps);
    return why.empty() ? why : fmt::format("{}: {}", what, why);
  };
  const auto bound_for = [&](Index n, int threads) {
    auto bound = bind(kernel, tile, n, threads);
    bound->set(inputs.parameters(kernel.facts()));
    return bound;
  };
  const auto work = static_cast<Index>(work_of(stages_));
  std::string why = same("a second run", one, 0, images, guard_);
  if (why.empty() && on_gpu()) why = same("another stream", one, 0, images, other_guard_);
  if (why.empty() && !on_gpu()) why = same("two threads", *bound_for(images, 2), 0, images, guard_);
  for (const int threads : more_threads)
    if (why.empty() && !on_gpu() && work < most_work_of_threads)
      why =
          same(fmt::format("{} threads", threads), *bound_for(images, threads), 0, images, guard_);
  if (why.empty()) why = same("the last image alone", one, images - 1, 1, guard_);
  for (const Index n : {7, 64}) {
    if (!why.empty() || work / images * n >= most_work_of_batch) continue;
    const std::string what = fmt::format("a batch of {}", n);
    why = kernel.facts().any_n ? same(what, one, 0, n, guard_)
                               : same(what, *bound_for(n, 2), 0, n, guard_);
  }
  return why;
}

std::string ChainParity::judge_labels(const ChainResult& got) const {
  const auto filters = chain_.stages.back().k;
  for (std::size_t i = 0; i < got.labels.size(); ++i) {
    const auto values = got.y.begin() + static_cast<Index>(i) * filters;
    const auto want = std::max_element(values, values + filters) - values;
    if (got.labels[i] != want)
      return fmt::format("label of image {}: {}, expected {}, the index of the largest y", i,
                         got.labels[i], want);
  }
  return {};
}

std::string ChainParity::judge_exact(const Expected& want, const ChainResult& got,
                                     Tally& tally) const {
  if (!got.error.empty()) return got.error;
  tally.outputs += static_cast<Index>(got.y.size());
  const auto compare = [&](std::size_t i, const std::vector<float>& y) {
    Stage stage = stages_[i];
    stage.layout = Layout::nhwc;
    if (chain_.mean && i + 1 == stages_.size()) stage.n = chain_.stages.back().n;
    return compare_exact(fmt::format("y of stage {}", i + 1), y, want.y[i], y_shape(stage));
  };
  for (std::size_t i = 0; i < got.inner.size(); ++i)
    if (std::string why = compare(i, got.inner[i]); !why.empty()) return why;
  std::string why = compare(stages_.size() - 1, got.y);
  return why.empty() ? judge_labels(got) : why;
}

std::string ChainParity::judge_real(const Kernel& kernel, const ChainInputs& inputs,
                                    const ChainResult& got, Tally& tally) {
  if (!got.error.empty()) return got.error;
  tally.outputs += static_cast<Index>(got.y.size());
  PlanOptions options;
  options.device = device_;
  std::vector<const Kernel*> kernels;
  if (!chain_.mean) kernels = kernels_alone(kernel, stages_, machine_for(options));
  const bool inner = kernel.facts().keeps_inner;
  if (kernels.empty() && !inner)
    return "real numbers cannot be judged: expected single stages of the same arithmetic, or a "
           "kernel that gives its intermediate values";
  std::string why = judge_labels(got);
  if (why.empty() && inner) why = judge_by_inner(inputs, got, tally);
  if (!why.empty() || kernels.empty()) return why;
  const auto [bits, is_new] = bits_.try_emplace(std::string(kernel.arithmetic()));
  if (is_new) bits->second = by_themselves(kernels, inputs);
  return compare_bits("y, compared with the separate stages", got.y, bits->second, {});
}

// Each stage on what the kernel itself read there, so that an excused spike does not spread.
std::string ChainParity::judge_by_inner(const ChainInputs& inputs, const ChainResult& got,
                                        Tally& tally) const {
  Tensor x = inputs.plain_x();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const bool last = i + 1 == stages_.size();
    const Inputs in = alone(inputs, i, std::move(x));
    Result result;
    result.y = last ? got.y : got.inner[i];
    std::string why;
    if (in.stage.act.is_neuron()) {
      why = compare_spikes(in, result, tally.spikes);
    } else {
      const auto by_oracle = [&](Sum sum) {
        auto y = Oracle(in.stage, in.weights, in.operands(), sum).all(threads_).y;
        return last && chain_.mean ? mean_of(y) : y;
      };
      const std::vector<double> want = by_oracle(Sum::real);
      why = compare_close("y", result.y, want,
                          error_bounds(in.stage, want, by_oracle(Sum::magnitude)), {});
    }
    if (!why.empty()) return fmt::format("stage {}: {}", i + 1, why);
    x = last ? Tensor() : next_x(i, result.y);
  }
  return {};
}

std::vector<float> ChainParity::by_themselves(const std::vector<const Kernel*>& kernels,
                                              const ChainInputs& inputs) const {
  Tensor x = inputs.x.to(device_);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    PlanOptions options;
    options.device = device_;
    options.threads = 1;
    options.kernel = kernels[i]->name();
    options.use_tuning = false;
    const Plan plan(stage, inputs.weights[i], options);
    const Tensor bias = stage.bias ? inputs.bias[i].to(device_) : Tensor();
    Tensor y(stage.output_dtype(on_gpu()), y_shape(stage), device_);
    // The same bytes, whether flattened or not.
    const TensorView flat(x.data<void>(), stage.dtype, x_shape(stage), device_);
    plan.run({.x = flat, .bias = bias, .y = y}).or_throw();
    if (on_gpu()) gpu::synchronize(device_, {});
    x = std::move(y);
  }
  const Tensor y = x.to(Device{});
  std::vector<float> floats(static_cast<std::size_t>(y.elements()));
  for (Index i = 0; i < y.elements(); ++i)
    floats[static_cast<std::size_t>(i)] = math::load(y.view().dtype, y.view().data, i);
  return floats;
}

}  // namespace convoy::verify
