// Running a loaded network.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"
#include "network/program.hpp"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

// Of images whose values are turned back into pixels on the CPU.
constexpr Index chunk_bytes = Index{1} << 20;

/// Images [first, first + n) of a view with n as its first axis, or their outputs.
template <class View>
View part_of(View view, Index first, Index n) {
  if (!view) return view;
  view.data = const_cast<std::byte*>(bytes_at(view, first * view.stride[0]));
  view.shape[0] = n;
  return view;
}

}  // namespace

std::byte* Network::Impl::tensor(Index number) const {
  return memory.data<std::byte>() + memory_plan.offset[static_cast<std::size_t>(number)];
}

Status Network::Impl::run_step(const Step& step, Index n, const void* x, void* y,
                               std::int32_t* labels, float* const* inner, Times* times,
                               Stream stream) const {
  const Chain chain = step.bound->chain();
  const auto begin = times ? Clock::now() : Clock::time_point();
  RunArgs args;
  args.n = n * step.fold;
  args.bias = step.bias.front().data<float>();
  args.x = x;
  args.x_stride = dense_x(chain.front(), args.n);
  args.x_on_host = staged != nullptr && x == staged;
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
  args.seconds = times && by_layer ? times->seconds + step.first : nullptr;
  const Status status = step.bound->run(args, workspace.data<void>(), stream);
  if (!status.ok()) return {status.code(), layer(step.first).name + ": " + status.message()};
  if (times) add_since(begin, step, n, !by_layer, stream, *times);
  return {};
}

void Network::Impl::add_since(Clock::time_point begin, const Step& step, Index n, bool adds_seconds,
                              Stream stream, Times& times) const {
  if (on_gpu()) gpu::synchronize(machine.device, stream);
  const auto since = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  const Clock::time_point end = Clock::now();
  if (adds_seconds)
    times.seconds[step.first] += since(begin, end) * (on_gpu() ? 1 : threads->count());
  if (times.spans)
    times.spans->push_back(
        {step.first, step.count, n, since(times.begin, begin), since(times.begin, end)});
}

/// Images as the first step reads them.
const void* Network::Impl::input_of(const void* images, DType type, Index n, Stream stream) const {
  if (reads_images || type != text.dtype) return images;
  const Index count = n * input_values;
  auto* const to = reinterpret_cast<float*>(tensor(0));
  if (!on_gpu()) {
    conversion.run(*threads, count, images, to);
  } else if (conversion.of_pixels()) {
    gpu::values_of_pixels(machine.device, stream, static_cast<const std::uint8_t*>(images), count,
                          text.c, device_tables.data<float>(), to);
  } else {
    gpu::normalise(machine.device, stream, static_cast<const float*>(images), count, text.c,
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

/// Means and labels of a batch, from the last step's output to where they shall be.
void Network::Impl::give_outputs(Index n, const Outputs& outputs, Stream stream) const {
  const Index count = last().mean ? 1 : steps_of(last());
  const DType type = last().mean ? DType::f32 : text.layer_type();
  if (!on_gpu()) {
    network::mean_and_labels(type, tensor(last().out), count, n, classes, outputs.mean,
                             outputs.labels);
    return;
  }
  auto* const own_mean = device_outputs.data<float>();
  auto* const own_labels = reinterpret_cast<std::int32_t*>(own_mean + at_once * classes);
  gpu::mean_and_labels(machine.device, stream, type, tensor(last().out), count, n, classes,
                       outputs.mean && outputs.mean_there ? outputs.mean : own_mean,
                       outputs.labels && outputs.labels_there ? outputs.labels : own_labels);
  const auto copy = [&](const void* from, void* to, Index values) {
    gpu::copy_async(machine.device, to, from, static_cast<std::size_t>(values) * 4, stream);
  };
  if (outputs.mean && !outputs.mean_there) copy(own_mean, outputs.mean, n * classes);
  if (outputs.labels && !outputs.labels_there) copy(own_labels, outputs.labels, n);
}

Network::Impl::Outputs Network::Impl::outputs_at(const Operands& operands, Index first) const {
  const auto& [images, logits, labels] = operands;
  return {.mean = logits ? static_cast<float*>(logits.data) + first * classes : nullptr,
          .labels = labels ? static_cast<std::int32_t*>(labels.data) + first : nullptr,
          .mean_there = logits.device == machine.device,
          .labels_there = labels.device == machine.device};
}

/// One pass through the steps: at most `at_once` images, or any number.
Status Network::Impl::run_chunk(const void* images, DType type, Index n, const Outputs& outputs,
                                Times* times, Stream stream) const {
  const void* const input = input_of(images, type, n, stream);
  if (any_n)
    return run_step(last(), n, input, outputs.mean, outputs.labels, nullptr, times, stream);
  for (const Step& step : steps) {
    const void* const x = step.in == 0 ? input : tensor(step.in);
    const auto begin = times ? Clock::now() : Clock::time_point();
    for (const Part& part : step.parts) put(part, n, tensor(part.tensor), tensor(step.in), stream);
    if (times && !step.parts.empty()) add_since(begin, step, n, true, stream, *times);
    Status status = run_step(step, n, x, tensor(step.out), nullptr, nullptr, times, stream);
    if (!status.ok()) return status;
  }
  if (outputs.mean || outputs.labels) give_outputs(n, outputs, stream);
  return {};
}

/// Images and outputs are on the network's device.
Status Network::Impl::run_there(const Operands& operands, Times* times, Stream stream) const {
  const ConstTensorView& images = operands.images;
  const Index n = images.shape[0], most = any_n ? n : at_once;
  for (Index first = 0; first < n; first += most) {
    Status status =
        run_chunk(bytes_at(images, first * input_values), images.dtype, std::min(most, n - first),
                  outputs_at(operands, first), times, stream);
    if (!status.ok()) return status;
  }
  return {};
}

Status Network::Impl::run_on_cpu(const Operands& operands, Times* times) const {
  const auto& [images, logits, labels] = operands;
  if (!turns_back(images)) return run_there(operands, times, {});
  const network::Chunks chunks = network::cut_into_chunks(
      images.shape[0], network::ring_of_bytes(input_values, chunk_bytes).images);
  if (own_pixels.elements() < chunks.size * input_values)
    own_pixels = Tensor(DType::u8, {chunks.size * input_values});
  are_pixels.resize(std::max(are_pixels.size(), static_cast<std::size_t>(chunks.size)));
  std::vector<Index> odd;
  for (Index k = 0; k < chunks.count; ++k) {
    const Index first = chunks.begin(k), n = chunks.images(k);
    auto* const to = own_pixels.data<std::uint8_t>();
    const auto* const from = static_cast<const float*>(images.data) + first * input_values;
    threads->for_each(n, [&](Index i, int) {
      are_pixels[static_cast<std::size_t>(i)] =
          pixels_of_values.run(from + i * input_values, input_values, to + i * input_values);
    });
    for (Index i = 0; i < n; ++i)
      if (!are_pixels[static_cast<std::size_t>(i)]) odd.push_back(first + i);
    ConstTensorView view = images;
    view.data = to;
    view.dtype = text.dtype;
    view.shape[0] = n;
    Status status =
        run_there({view, part_of(logits, first, n), part_of(labels, first, n)}, times, {});
    if (!status.ok()) return status;
  }
  return run_odd(operands, std::move(odd), times, {});
}

/// Computes images that hold other values than those of pixels by the layers that read such. Only
/// they: the bits of an image do not depend on its neighbours.
Status Network::Impl::run_odd(const Operands& operands, std::vector<Index> odd, Times* times,
                              Stream stream) const {
  if (odd.empty()) return {};
  if (!of_values) {
    NetworkText values = text;
    values.dtype = DType::f32;
    values.mean.clear(), values.std.clear();
    of_values = std::make_unique<Impl>(std::move(values), options, graph);
  }
  std::sort(odd.begin(), odd.end());
  for (std::size_t i = 0; i < odd.size();) {
    std::size_t count = 1;
    while (i + count < odd.size() && odd[i + count] == odd[i] + static_cast<Index>(count)) ++count;
    const auto part = [&](const auto& view) {
      return part_of(view, odd[i], static_cast<Index>(count));
    };
    Status status = of_values->run(
        {part(operands.images), part(operands.logits), part(operands.labels)}, times, stream);
    if (!status.ok()) return status;
    i += count;
  }
  return {};
}

Status Network::Impl::run(const Operands& operands, Times* times, Stream stream) const {
  const std::string wrong = check(operands);
  if (!wrong.empty()) return {StatusCode::invalid_operand, wrong};
  if (operands.images.shape[0] == 0) return {};
  if (!busy.take()) return {StatusCode::busy, is_running};
  const Busy release{busy};
  try {
    if (!on_gpu()) return run_on_cpu(operands, times);
    const auto there = [&](const auto& view) { return !view || view.device == machine.device; };
    const bool all = there(operands.images) && there(operands.logits) && there(operands.labels);
    return all ? run_there(operands, times, stream) : run_by_host(operands, times, stream);
  } catch (...) {
    return current_failure();
  }
}

void Network::Impl::warm(Index n) const {
  if (n < 1) throw Error(fmt::format("warm: found {} images, expected at least 1.", n));
  const Shapes end = shapes_of(graph.layers.back().stage);
  const bool labelled = end.out_h == 1 && end.out_w == 1;
  for (const Index images : {n, Index{1}}) {
    const Tensor zeros(text.dtype, {images, text.h, text.w, text.c});
    Tensor labels(DType::i32, {labelled ? images : 0}),
        logits(DType::f32, {labelled ? 0 : images, classes});
    run({zeros, labelled ? TensorView() : logits.view(), labelled ? labels.view() : TensorView()},
        nullptr, {})
        .or_throw();
  }
}

}  // namespace convoy
