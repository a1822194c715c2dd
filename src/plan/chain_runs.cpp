#include "plan/chain_runs.hpp"

#include <algorithm>

#include "plan/measure_tiles.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

PlanOptions without_choice(PlanOptions options) {
  options.kernel.clear();
  options.tile.clear();
  return options;
}

}  // namespace

ChainRuns::ChainRuns(const Chain& chain, const PlanOptions& options)
    : chain_(chain), options_(without_choice(options)), machine_(machine_for(options_)) {
  check(chain, machine_.device.kind == DeviceKind::cuda);
  alone_ = stages_alone(chain);
  const bool gpu = machine_.device.kind == DeviceKind::cuda;
  if (chain.mean) labels_ = Tensor(DType::i32, {chain.back().n}, machine_.device);
  const bool values = chain.constants && chain.front().dtype == DType::u8;
  if (values) {
    pixels_ = std::move(RandomOperands(chain.front()).x);
    if (gpu) pixels_ = pixels_.to(machine_.device);
    for (Index i = 0; i < chain.front().c * 256; ++i)
      values_.push_back((static_cast<float>(i % 256) - 127.5F) / 64);
    alone_.front().dtype = DType::f32;
  }
  for (const Stage& stage : alone_) {
    operands_.emplace_back(stage, operands_.size() + 1, machine_);
    const Tensor& bias = operands_.back().bias;
    folded_bias_.push_back(bias.view() ? bias.to({}) : Tensor());
    plans_.emplace_back(stage, operands_.back().weights, options_);
    workspaces_.push_back(workspace_for_streams(plans_.back().workspace_bytes(), machine_.device));
    predicted_stages_ += select(stage, machine_, options_, nullptr).tile.cost.seconds;
    sets_ = std::max(sets_, operands_.back().sets());
  }
  if (!chain.binary || gpu) return;
  float* const x = operands_.front().x.data<float>();
  for (Index i = 0; i < operands_.front().x.elements(); ++i) x[i] = x[i] > 0.5F ? 1 : 0;
}

std::vector<Parameters> ChainRuns::parameters(const KernelFacts& facts) const {
  std::vector<Parameters> all;
  for (std::size_t i = 0; i < alone_.size(); ++i) {
    all.push_back({.w = operands_[i].weights.data<float>()});
    if (facts.folds) all.back().bias = folded_bias_[i].data<float>();
    if (facts.folds && i == 0 && !values_.empty()) all.back().values = values_.data();
  }
  return all;
}

Samples ChainRuns::sample(double seconds,
                          const std::function<Status(Stream, std::size_t)>& run) const {
  return sample_calls(
      machine_.device, sets_, [&](Stream stream, std::size_t set) { run(stream, set).or_throw(); },
      seconds);
}

std::unique_ptr<const Bound> ChainRuns::bind(const std::string& kernel,
                                             const std::string& tile) const {
  PlanOptions options = options_;
  options.kernel = kernel;
  options.tile = tile;
  auto bound = std::make_unique<Bound>(chain_, options);
  bound->set(parameters(bound->kernel().facts()));
  return bound;
}

Samples ChainRuns::sample_whole(const Bound& bound, double seconds) {
  Tensor workspace = workspace_for_streams(bound.workspace_bytes(), machine_.device);
  return sample(seconds, [&](Stream stream, std::size_t set) {
    return run_whole(bound, workspace.data<void>(), stream, set);
  });
}

Samples ChainRuns::sample_stages(double seconds) {
  return sample(seconds, [&](Stream stream, std::size_t set) { return run_stages(stream, set); });
}

std::vector<std::byte> ChainRuns::outputs_of_whole(const Bound& bound) {
  Tensor workspace = workspace_for_streams(bound.workspace_bytes(), machine_.device);
  Tensor* const written[] = {&operands_.back().y, &labels_};
  return outputs_of(machine_.device, written,
                    [&] { return run_whole(bound, workspace.data<void>(), {}, 0); });
}

std::vector<std::byte> ChainRuns::outputs_of_stages() {
  Tensor* const written[] = {&operands_.back().y};
  return outputs_of(machine_.device, written, [&] { return run_stages({}, 0); });
}

std::string ChainRuns::other_than(std::string_view arithmetic) const {
  for (const Plan& plan : plans_)
    if (plan.arithmetic() != arithmetic) return plan.arithmetic();
  const Chain chain = chain_;
  if (chain.mean || !values_.empty())
    return "that of stages without the chain's pixels or its mean";
  return {};
}

Status ChainRuns::run_whole(const Bound& bound, void* workspace, Stream stream, std::size_t set) {
  const Chain chain = chain_;
  const bool folds = bound.kernel().facts().folds;
  const auto bias = [&](std::size_t i) {
    return folds ? nullptr : static_cast<const float*>(operands_of(i, set).bias.data);
  };
  std::vector<StageArgs> later;
  for (std::size_t i = 1; i < chain.size(); ++i) later.push_back({.bias = bias(i)});
  RunArgs args;
  args.bias = bias(0);
  args.n = chain.front().n;
  args.x = values_.empty() ? operands_of(0, set).x.data : pixels_.data<void>();
  args.x_stride = dense_x(chain.front(), args.n);
  args.y = operands_of(chain.size() - 1, set).y.data;
  args.y_stride = dense_y(chain.back(), args.n);
  args.later = later;
  args.labels = labels_.data<std::int32_t>();
  return bound.run(args, workspace, stream);
}

Status ChainRuns::run_stages(Stream stream, std::size_t set) {
  const void* x = operands_of(0, set).x.data;
  for (std::size_t i = 0; i < alone_.size(); ++i) {
    Operands all = operands_of(i, set);
    all.x.data = x;  // the same bytes, whether flattened or not
    all.workspace = workspaces_[i].data<void>();
    if (Status status = plans_[i].run(all, stream); !status.ok()) return status;
    x = all.y.data;
  }
  return {};
}

}  // namespace convoy
