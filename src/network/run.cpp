// Running a loaded network.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "math/half.hpp"
#include "network/program.hpp"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

/// Gives a claim back at the end of a scope.
struct Busy {
  Claim& claim;
  ~Busy() { claim.give(); }
};

constexpr const char* is_running =
    "this network is running already. Load a second one for a second caller.";

const std::byte* at(const TensorView& view, Index values) {
  return static_cast<const std::byte*>(view.data) +
         values * static_cast<Index>(size_of(view.dtype));
}

void copy_bytes(const void* from, Device from_device, void* to, Device to_device, Index bytes,
                Stream stream) {
  gpu::copy({.from = from,
             .to = to,
             .from_device = from_device,
             .to_device = to_device,
             .row_bytes = static_cast<std::size_t>(bytes)},
            stream);
}

}  // namespace

std::byte* Network::Impl::tensor(Index number) const {
  return memory.data<std::byte>() + memory_plan.offset[static_cast<std::size_t>(number)];
}

Status Network::Impl::run_step(const Step& step, Index n, const void* x, void* y,
                               std::int32_t* labels, float* const* inner, double* seconds,
                               Stream stream) const {
  const Chain chain = step.bound->chain();
  const auto begin = seconds ? Clock::now() : Clock::time_point();
  RunArgs args;
  args.n = n * step.fold;
  args.bias = step.bias.front().data<float>();
  args.x = x;
  args.x_stride = dense_x(chain.front(), args.n);
  args.y = y;
  args.y_stride = dense_y(chain.back(), args.n);
  args.labels = labels;
  for (std::size_t i = 1; i < step.count; ++i) {
    step.later[i - 1].bias = step.bias[i].data<float>();
    step.later[i - 1].inner_y = inner && i + 1 < step.count ? inner[i] : nullptr;
  }
  args.inner_y = inner && step.count > 1 ? inner[0] : nullptr;
  args.later = step.later;
  const bool by_layer = step.bound->kernel().facts().keeps_inner && !on_gpu();
  args.seconds = seconds && by_layer ? seconds + step.first : nullptr;
  const Status status = step.bound->run(args, nullptr, stream);
  if (!status.ok()) return {status.code(), layer(step.first).name + ": " + status.message()};
  if (!seconds || by_layer) return {};
  add_since(begin, stream, seconds[step.first]);
  return {};
}

/// Adds what `profile` reports: seconds until the stream is done, on the CPU of all threads.
void Network::Impl::add_since(Clock::time_point begin, Stream stream, double& seconds) const {
  if (on_gpu()) gpu::synchronize(machine.device, stream);
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  seconds += elapsed * (on_gpu() ? 1 : threads->count());
}

/// Images [first, first + n) as the first step reads them, on the network's device.
const void* Network::Impl::input_of(const TensorView& images, Index first, Index n,
                                    Stream stream) const {
  const Index count = n * input_values;
  const void* from = at(images, first * input_values);
  if (on_gpu() && images.device == Device{}) {
    copy_bytes(from, {}, device_images.data<std::byte>(), machine.device,
               count * static_cast<Index>(size_of(text.dtype)), stream);
    from = device_images.data<std::byte>();
  }
  if (reads_images) return from;
  auto* const to = reinterpret_cast<float*>(tensor(0));
  if (!on_gpu()) {
    conversion.run(*threads, count, from, to);
  } else if (conversion.of_pixels()) {
    gpu::values_of_pixels(machine.device, stream, static_cast<const std::uint8_t*>(from), count,
                          text.c, device_tables.data<float>(), to);
  } else {
    gpu::normalise(machine.device, stream, static_cast<const float*>(from), count, text.c,
                   device_tables.data<float>(), to);
  }
  return to;
}

/// Puts n images' pixels of one tensor beside those of others.
void Network::Impl::put(const Part& part, Index n, const void* from, void* to,
                        Stream stream) const {
  const std::size_t value = size_of(text.layer_type());
  const auto bytes = [&](Index values) { return static_cast<std::size_t>(values) * value; };
  const std::size_t row = bytes(part.channels), pitch = bytes(part.all);
  auto* const first = static_cast<std::byte*>(to) + bytes(part.before);
  const Index pixels = n * part.pixels;
  if (on_gpu()) {
    gpu::copy({.from = from,
               .to = first,
               .from_device = machine.device,
               .to_device = machine.device,
               .row_bytes = row,
               .rows = static_cast<std::size_t>(pixels),
               .from_pitch = row,
               .to_pitch = pitch},
              stream);
    return;
  }
  constexpr Index of_a_task = 256;
  threads->for_each((pixels + of_a_task - 1) / of_a_task, [&](Index task, int) {
    const Index end = std::min(pixels, (task + 1) * of_a_task);
    for (Index pixel = task * of_a_task; pixel < end; ++pixel) {
      const auto i = static_cast<std::size_t>(pixel);
      std::memcpy(first + i * pitch, static_cast<const std::byte*>(from) + i * row, row);
    }
  });
}

/// Means and labels of a batch, from the last step's output to where the caller wants them.
void Network::Impl::give_outputs(Index first, Index n, const TensorView& logits,
                                 const TensorView& labels, Stream stream) const {
  const Index count = last().mean ? 1 : steps_of(last());
  const DType type = last().mean ? DType::f32 : text.layer_type();
  auto* const mean = logits ? static_cast<float*>(logits.data) + first * classes : nullptr;
  auto* const label = labels ? static_cast<std::int32_t*>(labels.data) + first : nullptr;
  if (!on_gpu()) {
    network::mean_and_labels(type, tensor(last().out), count, n, classes, mean, label);
    return;
  }
  auto* const own_mean = device_outputs.data<float>();
  auto* const own_label = reinterpret_cast<std::int32_t*>(own_mean + at_once * classes);
  const bool mean_there = logits && logits.device == machine.device,
             label_there = labels && labels.device == machine.device;
  gpu::mean_and_labels(machine.device, stream, type, tensor(last().out), count, n, classes,
                       mean_there ? mean : own_mean, label_there ? label : own_label);
  const Index bytes = n * Index{sizeof(float)};
  if (mean && !mean_there) copy_bytes(own_mean, machine.device, mean, {}, bytes * classes, stream);
  if (label && !label_there) copy_bytes(own_label, machine.device, label, {}, bytes, stream);
}

Status Network::Impl::run_batch(const TensorView& images, Index first, Index n,
                                const TensorView& logits, const TensorView& labels, double* seconds,
                                Stream stream) const {
  const void* const input = input_of(images, first, n, stream);
  for (const Step& step : steps) {
    const void* const x = step.in == 0 ? input : tensor(step.in);
    const auto begin = seconds ? Clock::now() : Clock::time_point();
    for (const Part& part : step.parts) put(part, n, tensor(part.tensor), tensor(step.in), stream);
    if (seconds && !step.parts.empty()) add_since(begin, stream, seconds[step.first]);
    Status status = run_step(step, n, x, tensor(step.out), nullptr, nullptr, seconds, stream);
    if (!status.ok()) return status;
  }
  if (logits || labels) give_outputs(first, n, logits, labels, stream);
  return {};
}

// All of the network as one step, on images [first, first + n).
Status Network::Impl::run_any_n(const TensorView& images, Index first, Index n,
                                const TensorView& logits, const TensorView& labels, double* seconds,
                                Stream stream) const {
  auto* const mean = logits ? static_cast<float*>(logits.data) + first * classes : nullptr;
  auto* const label = labels ? static_cast<std::int32_t*>(labels.data) + first : nullptr;
  const void* const input = input_of(images, first, n, stream);
  const bool mean_there = !logits || logits.device == machine.device,
             label_there = !labels || labels.device == machine.device;
  auto* const own_mean = device_outputs.data<float>();
  auto* const own_label =
      own_mean ? reinterpret_cast<std::int32_t*>(own_mean + at_once * classes) : nullptr;
  Status status = run_step(last(), n, input, mean_there ? mean : own_mean,
                           label_there ? label : own_label, nullptr, seconds, stream);
  if (!status.ok()) return status;
  const Index bytes = n * Index{sizeof(float)};
  if (!mean_there) copy_bytes(own_mean, machine.device, mean, {}, bytes * classes, stream);
  if (!label_there) copy_bytes(own_label, machine.device, label, {}, bytes, stream);
  return {};
}

Status Network::Impl::run(const TensorView& images, const TensorView& logits,
                          const TensorView& labels, double* seconds, Stream stream) const {
  const std::string wrong = check(images, logits, labels);
  if (!wrong.empty()) return {StatusCode::invalid_operand, wrong};
  const Index n = images.shape[0];
  if (n == 0) return {};
  if (!busy.take()) return {StatusCode::busy, is_running};
  const Busy release{busy};
  try {
    const auto there = [&](const TensorView& view) {
      return !view || view.device == machine.device;
    };
    const Index most = any_n && there(images) && there(logits) && there(labels) ? n : at_once;
    for (Index first = 0; first < n; first += most) {
      const Index count = std::min(most, n - first);
      Status status = any_n ? run_any_n(images, first, count, logits, labels, seconds, stream)
                            : run_batch(images, first, count, logits, labels, seconds, stream);
      if (!status.ok()) return status;
    }
  } catch (...) {  // of a GPU: on the CPU nothing throws
    return current_failure();
  }
  return {};
}

std::vector<Tensor> Network::Impl::trace(const TensorView& images) const {
  const std::string wrong = check(images, {}, {});
  if (!wrong.empty()) throw Error(wrong);
  const Index n = images.shape[0];
  if (n < 1 || n > options.batch)
    throw Error(
        fmt::format("images: {}, expected 1 to {} (the batch) to trace.", n, options.batch));
  if (!busy.take()) throw Error(is_running);
  const Busy release{busy};

  std::vector<Tensor> outputs;
  for (const Step& step : steps)
    for (std::size_t i = step.first; i < step.first + step.count; ++i) {
      const Stage& stage = layer(i).stage;
      const Shapes shapes = shapes_of(stage);
      const bool mean = step.mean && i + 1 == step.first + step.count;
      outputs.emplace_back(DType::f32, std::vector<Index>{layer(i).timed && !mean ? graph.steps : 1,
                                                          n, shapes.out_h, shapes.out_w, stage.k});
    }
  // What each step wrote, kept: memory of its own for each.
  std::vector<Tensor> kept;
  const auto run_kept = [&](const Step& step, const void* x, float* const* inner) {
    const Index values = outputs[step.first + step.count - 1].elements();
    const DType type = step.mean ? DType::f32 : text.layer_type();
    kept.emplace_back(type, std::vector<Index>{values}, machine.device);
    run_step(step, n, x, kept.back().view().data, nullptr, inner, nullptr, {}).or_throw();
    const Tensor there = kept.back().to({});
    for (Index v = 0; v < values; ++v)
      outputs[step.first + step.count - 1].data<float>()[v] =
          math::load(type, there.view().data, v);
  };
  std::vector<const void*> results{input_of(images, 0, n, {})};
  for (const Step& step : steps) {
    const void* x = nullptr;
    if (step.parts.empty()) {
      x = results[static_cast<std::size_t>(step.in)];
    } else {
      const Part& any = step.parts.front();
      kept.emplace_back(text.layer_type(), std::vector<Index>{n * any.pixels * any.all},
                        machine.device);
      void* const all = kept.back().view().data;
      for (const Part& part : step.parts)
        put(part, n, results[static_cast<std::size_t>(part.tensor)], all, {});
      x = all;
    }
    if (step.apart.empty()) {
      std::vector<float*> inner;
      std::vector<Tensor> there;  // on the network's device
      for (std::size_t i = 0; i + 1 < step.count; ++i) {
        Tensor& output = outputs[step.first + i];
        if (on_gpu()) there.push_back(Tensor(DType::f32, {output.elements()}, machine.device));
        inner.push_back(on_gpu() ? there.back().data<float>() : output.data<float>());
      }
      run_kept(step, x, inner.data());
      for (std::size_t i = 0; i < there.size(); ++i) {
        const Tensor host = there[i].to({});
        std::copy_n(host.data<float>(), host.elements(), outputs[step.first + i].data<float>());
      }
    }
    for (const Step& one : step.apart) {
      run_kept(one, x, nullptr);
      x = kept.back().view().data;
    }
    results.push_back(kept.back().view().data);
  }
  return outputs;
}

}  // namespace convoy
