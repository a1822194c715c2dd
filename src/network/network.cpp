// Running a loaded network.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "network/network_impl.hpp"

namespace convoy {
namespace {

using network::ChainSink;
using network::ChainSource;
using Clock = std::chrono::steady_clock;

std::int32_t arg_max(const float* values, Index count) {
  return static_cast<std::int32_t>(std::max_element(values, values + count) - values);
}

/// `view` with other data and another number of images, dense; a leading axis counts steps.
TensorView with_images(TensorView view, float* data, Index n) {
  const auto images = static_cast<std::size_t>(view.rank - 4);
  view.data = data;
  view.shape[images] = n;
  if (images) view.stride[0] = n * view.stride[images];
  return view;
}

}  // namespace

std::string Network::Impl::check(const TensorView& images, const TensorView& out,
                                 const TensorView& labels) const {
  const bool shape =
      images && images.dtype == text.dtype && images.contiguous() && images.device == Device{} &&
      (images.rank == 4 || (images.rank == 3 && text.c == 1)) && images.shape[1] == text.h &&
      images.shape[2] == text.w && (images.rank == 3 || images.shape[3] == text.c);
  if (!shape)
    return fmt::format("images: {}, expected {}[N,{},{},{}]{}, dense, on the host.",
                       describe(images), convoy::name(text.dtype), text.h, text.w, text.c,
                       text.c == 1 ? " (or without the last axis)" : "");
  const Index n = images.shape[0];
  if (out && (out.dtype != DType::f32 || out.rank != 2 || out.shape[0] != n ||
              out.shape[1] != classes || !out.contiguous()))
    return fmt::format("logits: {}, expected f32[{},{}], dense.", describe(out), n, classes);
  if (labels && (labels.dtype != DType::i32 || labels.rank != 1 || labels.shape[0] != n ||
                 !labels.contiguous()))
    return fmt::format("labels: {}, expected i32[{}], dense.", describe(labels), n);
  return {};
}

const float* Network::Impl::dense_input(Index n, const TensorView& images, Index first) const {
  if (text.dtype == DType::f32 && text.mean.empty() && text.std.empty())
    return static_cast<const float*>(images.data) + first * input_values;
  float* const to = input.data();
  const Index c = text.c;
  if (text.dtype == DType::u8) {
    const auto* const from = static_cast<const std::uint8_t*>(images.data) + first * input_values;
    for (Index i = 0; i < n * input_values; ++i)
      to[i] = values[static_cast<std::size_t>(i % c * 256 + from[i])];
  } else {
    const auto* const from = static_cast<const float*>(images.data) + first * input_values;
    for (Index i = 0; i < n * input_values; ++i)
      to[i] = (from[i] - of_channel(text.mean, i % c, 0.0F)) / of_channel(text.std, i % c, 1.0F);
  }
  return to;
}

Status Network::Impl::run_plan(const Segment& segment, Index n, float* x, float* y) const noexcept {
  Operands operands;
  operands.x = with_images(segment.x, x, n * segment.fold);
  operands.y = with_images(segment.y, y, n * segment.fold);
  operands.bias = segment.bias_view;
  return segment.plan->run(operands);
}

/// One batch through every segment; mean is [n,classes].
Status Network::Impl::run_batch(Index n, const TensorView& images, Index first, float* mean,
                                double* seconds) const noexcept {
  const auto* const pixels = static_cast<const std::uint8_t*>(images.data) + first * input_values;
  float* x = takes_images_built ? nullptr : const_cast<float*>(dense_input(n, images, first));
  float* y = ping.data();
  for (const Segment& segment : segments) {
    const auto begin = Clock::now();
    if (segment.plan) {
      const Status status = run_plan(segment, n, x, y);
      if (!status.ok()) return Status(layer(segment.first).name + ": " + status.message());
      if (seconds)
        seconds[segment.first] +=
            std::chrono::duration<double>(Clock::now() - begin).count() * threads->count();
    } else {
      const ChainSource source{pixels, x};
      const ChainSink sink{segment.timed_out ? nullptr : y, nullptr,
                           segment.timed_out ? y : nullptr};
      segment.chain->run(*threads, n, source, sink, seconds ? seconds + segment.first : nullptr);
    }
    x = y;
    y = y == ping.data() ? pong.data() : ping.data();
  }
  const Index values_of_step = n * classes, steps = segments.back().timed_out ? text.steps : 1;
  for (Index i = 0; i < values_of_step; ++i) {
    float sum = x[i];
    for (Index t = 1; t < steps; ++t) sum += x[t * values_of_step + i];
    mean[i] = steps > 1 ? sum / static_cast<float>(steps) : sum;
  }
  return {};
}

Status Network::Impl::run(const TensorView& images, const TensorView& out, const TensorView& labels,
                          double* seconds) const noexcept {
  const std::string wrong = check(images, out, labels);
  if (!wrong.empty()) return Status(wrong);
  if (busy.test_and_set(std::memory_order_acquire))
    return Status("this network is running already. Load a second one for a second caller.");
  const Index n = images.shape[0];
  auto* const label = static_cast<std::int32_t*>(labels.data);
  auto* const logit = static_cast<float*>(out.data);
  Status status;
  if (one_chain()) {
    if (n > 0)
      segments[0].chain->run(*threads, n, {static_cast<const std::uint8_t*>(images.data), nullptr},
                             {logit, label, nullptr}, seconds);
  } else {
    for (Index first = 0; first < n && status.ok(); first += options.batch) {
      const Index count = std::min(options.batch, n - first);
      float* const mean = logit ? logit + first * classes : logits.data();
      status = run_batch(count, images, first, mean, seconds);
      for (Index i = 0; label && status.ok() && i < count; ++i)
        label[first + i] = arg_max(mean + i * classes, classes);
    }
  }
  busy.clear(std::memory_order_release);
  return status;
}

Network::Network(const std::string& folder, const NetworkOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

const NetworkText& Network::text() const {
  return impl_->text;
}
Index Network::classes() const {
  return impl_->classes;
}
Index Network::parameters() const {
  return impl_->parameters;
}
int Network::threads() const {
  return impl_->threads->count();
}
const std::vector<LayerReport>& Network::layers() const {
  return impl_->reports;
}

Status Network::run(const TensorView& images, const TensorView& logits,
                    const TensorView& labels) const noexcept {
  return impl_->run(images, logits, labels, nullptr);
}

Status Network::profile(const TensorView& images, std::vector<double>& seconds) const {
  seconds.resize(impl_->reports.size(), 0.0);
  return impl_->run(images, {}, {}, seconds.data());
}

std::vector<Tensor> Network::trace(const TensorView& images) const {
  const Impl& impl = *impl_;
  const std::string wrong = impl.check(images, {}, {});
  if (!wrong.empty()) throw Error(wrong);
  const Index n = images.shape[0];
  if (n < 1 || n > impl.options.batch)
    throw Error(
        fmt::format("images: {}, expected 1 to {} (the batch) to trace.", n, impl.options.batch));
  std::vector<Tensor> outputs;
  bool timed = false;
  for (std::size_t i = 0; i < impl.stages.size(); ++i) {
    const Shapes shapes = shapes_of(impl.stage(i));
    timed |= impl.stage(i).act.is_neuron();
    const bool mean = impl.reports[i].kernel == "spike_linear" && !impl.stage(i).act.is_neuron();
    outputs.emplace_back(DType::f32,
                         std::vector<Index>{timed && !mean ? impl.text.steps : 1, n, shapes.out_h,
                                            shapes.out_w, impl.stage(i).k});
  }
  float* x = impl.takes_images_built ? nullptr : const_cast<float*>(impl.dense_input(n, images, 0));
  for (const Impl::Segment& segment : impl.segments) {
    std::vector<float*> at;
    for (std::size_t i = 0; i < segment.count; ++i)
      at.push_back(outputs[segment.first + i].data<float>());
    if (segment.plan)
      impl.run_plan(segment, n, x, at[0]).or_throw();
    else
      segment.chain->trace(n, {static_cast<const std::uint8_t*>(images.data), x}, at.data());
    x = at.back();
  }
  return outputs;
}

}  // namespace convoy
