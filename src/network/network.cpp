// Running a loaded network.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>

#include "math/half.hpp"
#include "network/network_impl.hpp"
#include "plan/operands.hpp"

namespace convoy {
namespace {

using network::ChainSink;
using network::ChainSource;
using Clock = std::chrono::steady_clock;

std::int32_t arg_max(const float* values, Index count) {
  return static_cast<std::int32_t>(std::max_element(values, values + count) - values);
}

/// `view` with other data and another number of images, dense; a leading axis counts steps.
TensorView with_images(TensorView view, void* data, Index n) {
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
      images.dtype == text.dtype && images.contiguous() && images.device == Device{} &&
      (images.rank == 4 || (images.rank == 3 && text.c == 1)) && images.shape[1] == text.h &&
      images.shape[2] == text.w && (images.rank == 3 || images.shape[3] == text.c) &&
      (images || images.shape[0] == 0);
  if (!shape)
    return fmt::format("images: {}, expected {}[N,{},{},{}]{}, dense, on the host.",
                       describe(images), convoy::name(text.dtype), text.h, text.w, text.c,
                       text.c == 1 ? " (or without the last axis)" : "");
  const Index n = images.shape[0];
  if (out && (out.dtype != DType::f32 || out.rank != 2 || out.shape[0] != n ||
              out.shape[1] != classes || !out.contiguous()))
    return fmt::format("logits: {}, expected f32[{},{}], dense.", describe(out), n, classes);
  const Shapes last_layer = shapes_of(stage(stages.size() - 1));
  if (labels && (last_layer.out_h != 1 || last_layer.out_w != 1))
    return fmt::format(
        "labels: the last layer gives {}x{}x{}, expected 1x1 and one channel a class. End the "
        "network with flatten and a linear layer, or ask for logits alone.",
        last_layer.out_h, last_layer.out_w, stage(stages.size() - 1).k);
  if (labels && (labels.dtype != DType::i32 || labels.rank != 1 || labels.shape[0] != n ||
                 !labels.contiguous()))
    return fmt::format("labels: {}, expected i32[{}], dense.", describe(labels), n);
  return check_memory(images, out, labels);
}

// Where the tensors lie, whose shapes are right.
std::string Network::Impl::check_memory(const TensorView& images, const TensorView& out,
                                        const TensorView& labels) const {
  struct Given {
    std::string_view name;
    const TensorView& view;
  };
  const Given all[] = {{"images", images}, {"logits", out}, {"labels", labels}};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const TensorView& view = all[i].view;
    if (!view) continue;
    if (!(view.device == Device{}))
      return fmt::format("{}: they are on {}, expected the host.", all[i].name,
                         to_text(view.device));
    const Status aligned = check_aligned(all[i].name, view);
    if (!aligned.ok()) return aligned.message();
    const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
    const auto end = begin + static_cast<std::uintptr_t>(extent_bytes(view).value());
    for (std::size_t j = 0; j < i; ++j) {
      const auto other = reinterpret_cast<std::uintptr_t>(all[j].view.data);
      const auto bytes = static_cast<std::uintptr_t>(extent_bytes(all[j].view).value());
      if (all[j].view && begin < other + bytes && other < end)
        return fmt::format("{} and {} overlap in memory. Give {} memory of its own.", all[i].name,
                           all[j].name, all[i].name);
    }
  }
  return {};
}

const void* Network::Impl::dense_input(Index n, const TensorView& images, Index first) const {
  if (text.dtype != DType::u8 && text.mean.empty() && text.std.empty())
    return static_cast<const std::byte*>(images.data) +
           first * input_values * static_cast<Index>(size_of(text.dtype));
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

Status Network::Impl::run_plan(const Planned& planned, Index n, void* x, void* y) const noexcept {
  Operands operands;
  operands.x = with_images(planned.x, x, n * planned.fold);
  operands.y = with_images(planned.y, y, n * planned.fold);
  operands.bias = planned.bias;
  return planned.plan->run(operands);
}

Status Network::Impl::run_segment(const Segment& segment, Index n, const std::uint8_t* pixels,
                                  void* x, void* y, double* seconds) const {
  if (segment.chain) {
    auto* const out = static_cast<float*>(y);
    const ChainSource source{pixels, static_cast<float*>(x)};
    const ChainSink sink{segment.timed_out ? nullptr : out, nullptr,
                         segment.timed_out ? out : nullptr};
    segment.chain->run(*threads, n, source, sink, seconds ? seconds + segment.first : nullptr);
    return {};
  }
  const auto begin = Clock::now();
  const Planned& planned = segment.plans[0];
  const Index images = n * planned.fold;
  Status status = segment.pair ? segment.pair->run(images, x, planned.bias.data<float>(),
                                                   segment.plans[1].bias.data<float>(), y, {})
                               : run_plan(planned, n, x, y);
  if (!status.ok()) return Status(layer(segment.first).name + ": " + status.message());
  if (!seconds) return {};
  if (on_gpu()) gpu::synchronize(options.device, {});
  seconds[segment.first] += std::chrono::duration<double>(Clock::now() - begin).count() *
                            (on_gpu() ? 1 : threads->count());
  return {};
}

/// The input of the first layer, on the device.
void* Network::Impl::on_device(Index n, const void* host) const {
  if (!on_gpu() || !host) return const_cast<void*>(host);
  const Index count = n * input_values;
  copy({const_cast<void*>(host), text.layer_type(), {count}},
       {device_input.view().data, text.layer_type(), {count}, options.device});
  return device_input.view().data;
}

/// Values of the last layer, on the host; everything before has happened.
const void* Network::Impl::on_host(Index count, const void* data) const {
  if (!on_gpu()) return data;
  copy({const_cast<void*>(data), text.layer_type(), {count}, options.device},
       {output.view().data, text.layer_type(), {count}});
  return output.view().data;
}

/// One batch through every segment; mean is [n,classes].
Status Network::Impl::run_batch(Index n, const TensorView& images, Index first, float* mean,
                                double* seconds) const {
  const auto* const pixels = static_cast<const std::uint8_t*>(images.data) + first * input_values;
  void* x = takes_images_built ? nullptr : on_device(n, dense_input(n, images, first));
  void* y = ping.view().data;
  for (const Segment& segment : segments) {
    Status status = run_segment(segment, n, pixels, x, y, seconds);
    if (!status.ok()) return status;
    x = y;
    y = y == ping.view().data ? pong.view().data : ping.view().data;
  }
  const Index values_of_step = n * classes, steps = segments.back().timed_out ? text.steps : 1;
  const void* const out = on_host(values_of_step * steps, x);
  const auto value = [&](Index i) { return math::load(text.layer_type(), out, i); };
  for (Index i = 0; i < values_of_step; ++i) {
    float sum = value(i);
    for (Index t = 1; t < steps; ++t) sum += value(t * values_of_step + i);
    mean[i] = steps > 1 ? sum / static_cast<float>(steps) : sum;
  }
  return {};
}

Status Network::Impl::run(const TensorView& images, const TensorView& out, const TensorView& labels,
                          double* seconds) const {
  const std::string wrong = check(images, out, labels);
  if (!wrong.empty()) return Status(wrong);
  if (images.shape[0] == 0) return {};
  if (!busy.take())
    return Status("this network is running already. Load a second one for a second caller.");
  const Index n = images.shape[0];
  auto* const label = static_cast<std::int32_t*>(labels.data);
  auto* const logit = static_cast<float*>(out.data);
  Status status;
  if (one_chain()) {
    segments[0].chain->run(*threads, n, {static_cast<const std::uint8_t*>(images.data), nullptr},
                           {logit, label, nullptr}, seconds);
  } else {
    for (Index first = 0; first < n && status.ok(); first += options.batch) {
      const Index count = std::min(options.batch, n - first);
      float* const mean = logit ? logit + first * classes : logits.data();
      try {
        status = run_batch(count, images, first, mean, seconds);
      } catch (const Error& error) {  // of a GPU: on the CPU nothing throws
        status = Status(error.what());
      }
      for (Index i = 0; label && status.ok() && i < count; ++i)
        label[first + i] = arg_max(mean + i * classes, classes);
    }
  }
  busy.give();
  return status;
}

Network::Network(const std::string& folder, const NetworkOptions& options)
    : impl_(Impl::make(folder, options)) {}
Network::Network(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

// What a Network without an Impl is.
constexpr const char* moved_from =
    "this Network was moved from. Use the one that it was moved to, or load it again.";

const Network::Impl& Network::impl() const {
  if (!impl_) throw Error(moved_from);
  return *impl_;
}

const NetworkText& Network::text() const {
  return impl().text;
}
Index Network::classes() const {
  return impl().classes;
}
Index Network::parameters() const {
  return impl().parameters;
}
int Network::threads() const {
  return impl().threads->count();
}
const std::vector<LayerReport>& Network::layers() const {
  return impl().reports;
}

Status Network::run(const TensorView& images, const TensorView& logits,
                    const TensorView& labels) const noexcept {
  try {
    return impl_ ? impl_->run(images, logits, labels, nullptr) : Status(moved_from);
  } catch (...) {
    // Only writing a message allocates; this one fits into the string itself.
    return Status("out of memory");
  }
}

Status Network::profile(const TensorView& images, std::vector<double>& seconds) const {
  seconds.resize(impl().reports.size(), 0.0);
  return impl().run(images, {}, {}, seconds.data());
}

std::vector<Tensor> Network::trace(const TensorView& images) const {
  const Impl& impl = this->impl();
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
  void* x = impl.takes_images_built ? nullptr : impl.on_device(n, impl.dense_input(n, images, 0));
  void* y = impl.ping.view().data;
  const DType type = impl.text.layer_type();
  for (const Impl::Segment& segment : impl.segments) {
    std::vector<float*> at;
    for (std::size_t i = 0; i < segment.count; ++i)
      at.push_back(outputs[segment.first + i].data<float>());
    if (segment.chain)
      segment.chain->trace(
          n, {static_cast<const std::uint8_t*>(images.data), static_cast<float*>(x)}, at.data());
    for (std::size_t i = 0; i < segment.plans.size(); ++i) {
      impl.run_plan(segment.plans[i], n, x, y).or_throw();
      const Index values = outputs[segment.first + i].elements();
      const void* const out = impl.on_host(values, y);
      for (Index v = 0; v < values; ++v) at[i][v] = math::load(type, out, v);
      x = y;
      y = y == impl.ping.view().data ? impl.pong.view().data : impl.ping.view().data;
    }
    if (segment.chain) x = at.back();
  }
  return outputs;
}

}  // namespace convoy
