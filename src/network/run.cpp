// Running a network.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"
#include "network/impl.hpp"

namespace convoy {
namespace {

// Of images whose values are turned back into pixels on the CPU.
constexpr Index chunk_bytes = Index{1} << 20;

/// Images [first, first + n) of a view with n as its first axis, or their outputs.
ConstTensorView part_of(ConstTensorView view, Index first, Index n) {
  if (!view) return view;
  view.data = bytes_at(view, first * view.stride[0]);
  view.shape[0] = n;
  return view;
}
TensorView part_of(TensorView view, Index first, Index n) {
  if (!view) return view;
  view.data = const_cast<std::byte*>(bytes_at(view, first * view.stride[0]));
  view.shape[0] = n;
  return view;
}

}  // namespace

Network::Impl::Outputs Network::Impl::outputs_at(const Operands& operands, Index first) const {
  const auto& [images, logits, labels] = operands;
  return {.logits = logits ? static_cast<float*>(logits.data) + first * classes() : nullptr,
          .labels = labels ? static_cast<std::int32_t*>(labels.data) + first : nullptr,
          .logits_there = logits.device == program.machine.device,
          .labels_there = labels.device == program.machine.device};
}

Status Network::Impl::run_chunk(network::Context& context, const void* images, DType type, Index n,
                                const Outputs& to, network::Times* times, Stream stream,
                                bool x_on_host) const {
  network::Pass pass{.n = n,
                     .inputs = {&images, 1},
                     .converted = type != input().type,
                     .x_on_host = x_on_host,
                     .times = times,
                     .stream = stream};
  // What a GPU's kernels can't reach is written on the GPU first.
  const bool copies_logits = to.logits && !to.logits_there,
             copies_labels = to.labels && !to.labels_there;
  float* own_logits = nullptr;
  std::int32_t* own_labels = nullptr;
  if (copies_logits || copies_labels) {
    own_logits = reinterpret_cast<float*>(context.results((Size(n) * (classes() + 1) * 4).value()));
    own_labels = reinterpret_cast<std::int32_t*>(own_logits + n * classes());
  }
  float* const logits = copies_logits ? own_logits : to.logits;
  pass.labels = copies_labels ? own_labels : to.labels;
  void* const first[] = {logits};
  if (output().type == DType::f32)
    pass.outputs = first;
  else
    pass.logits = logits;
  Status status = context.run(pass);
  if (!status.ok()) return status;
  const auto copy = [&](const void* from, void* there, Index values) {
    gpu::copy_async(program.machine.device, there, from, static_cast<std::size_t>(values) * 4,
                    stream);
  };
  if (copies_logits) copy(own_logits, to.logits, n * classes());
  if (copies_labels) copy(own_labels, to.labels, n);
  return {};
}

/// Images and outputs are on the network's device.
Status Network::Impl::run_there(network::Context& context, const Operands& operands,
                                network::Times* times, Stream stream) const {
  const ConstTensorView& images = operands.images;
  const Index n = images.shape[0], most = program.any_n ? n : program.at_once;
  for (Index first = 0; first < n; first += most) {
    Status status =
        run_chunk(context, bytes_at(images, first * input_values()), images.dtype,
                  std::min(most, n - first), outputs_at(operands, first), times, stream);
    if (!status.ok()) return status;
  }
  return {};
}

Status Network::Impl::run_on_cpu(network::Context& context, const Operands& operands,
                                 network::Times* times) const {
  const auto& [images, logits, labels] = operands;
  const network::PixelsOfValues* const inverse = inverse_for(images);
  if (inverse == nullptr) return run_there(context, operands, times, {});
  const Index values = input_values();
  const network::Chunks chunks =
      network::cut_into_chunks(images.shape[0], network::ring_of_bytes(values, chunk_bytes).images);
  auto* const pixels = reinterpret_cast<std::uint8_t*>(context.scratch(chunks.size * (values + 1)));
  auto* const are_pixels = pixels + chunks.size * values;
  std::vector<Index> odd;
  for (Index k = 0; k < chunks.count; ++k) {
    const Index first = chunks.begin(k), n = chunks.images(k);
    const auto* const from = static_cast<const float*>(images.data) + first * values;
    program.threads->for_each(n, [&](Index i, int) {
      are_pixels[i] = inverse->run(from + i * values, values, pixels + i * values) ? 1 : 0;
    });
    for (Index i = 0; i < n; ++i)
      if (are_pixels[i] == 0) odd.push_back(first + i);
    ConstTensorView view = images;
    view.data = pixels;
    view.dtype = input().type;
    view.shape[0] = n;
    Status status =
        run_there(context, {view, part_of(logits, first, n), part_of(labels, first, n)}, times, {});
    if (!status.ok()) return status;
  }
  return run_odd(operands, std::move(odd), times, {});
}

/// Computes images that hold other values than those of pixels by the layers that read such. Only
/// they: the bits of an image do not depend on its neighbours.
Status Network::Impl::run_odd(const Operands& operands, std::vector<Index> odd,
                              network::Times* times, Stream stream) const {
  if (odd.empty()) return {};
  const Impl& network =
      of_values.get([&] { return std::make_unique<Impl>(std::nullopt, *plain, program.options); });
  std::sort(odd.begin(), odd.end());
  for (std::size_t i = 0; i < odd.size();) {
    std::size_t count = 1;
    while (i + count < odd.size() && odd[i + count] == odd[i] + static_cast<Index>(count)) ++count;
    const auto part = [&](const auto& view) {
      return part_of(view, odd[i], static_cast<Index>(count));
    };
    Status status = network.run(
        {part(operands.images), part(operands.logits), part(operands.labels)}, times, stream);
    if (!status.ok()) return status;
    i += count;
  }
  return {};
}

Status Network::Impl::run(const Operands& operands, network::Times* times, Stream stream) const {
  const std::string wrong = check(operands);
  if (!wrong.empty()) return {StatusCode::invalid_operand, wrong};
  if (operands.images.shape[0] == 0) return {};
  try {
    network::Contexts::Taken context = contexts.take(stream);
    if (!context) return {StatusCode::busy, none_free};
    if (!on_gpu()) return run_on_cpu(*context, operands, times);
    const auto there = [&](const ConstTensorView& view) {
      return !view || view.device == program.machine.device;
    };
    const bool all = there(operands.images) && there(operands.logits) && there(operands.labels);
    if (all) return run_there(*context, operands, times, stream);
    Status status = run_by_host(*context, operands, times, stream);
    context.finished();
    return status;
  } catch (...) {
    return current_failure();
  }
}

void Network::Impl::warm(Index n) const {
  if (n < 1) throw Error(fmt::format("warm: found {} images, expected at least 1.", n));
  if (!takes_images()) return warm_by_names(n);
  const graph::Value& end = output();
  const bool labelled = end.h() == 1 && end.w() == 1;
  for (const Index images : {n, Index{1}}) {
    const Tensor zeros(input().type, {images, input().h(), input().w(), input().channels()});
    Tensor labels(DType::i32, {labelled ? images : 0}),
        logits(DType::f32, {labelled ? 0 : images, classes()});
    run({zeros, labelled ? TensorView() : logits.view(), labelled ? labels.view() : TensorView()},
        nullptr, {})
        .or_throw();
  }
}

}  // namespace convoy
