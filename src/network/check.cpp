// What a caller hands to Network::run.
#include <fmt/core.h>

#include <cstdint>
#include <iterator>

#include "network/impl.hpp"
#include "plan/operands.hpp"

namespace convoy {
namespace {

struct Given {
  std::string_view name;
  ConstTensorView view;
};

// Where the tensors lie, whose shapes are right.
std::string check_memory(std::initializer_list<Given> all, Device device) {
  for (const Given* given = all.begin(); given != all.end(); ++given) {
    const ConstTensorView& view = given->view;
    if (!view) continue;
    if (!(view.device == Device{}) && !(view.device == device))
      return fmt::format(
          "{}: they are on {}, expected {}. Copy them first.", given->name, to_text(view.device),
          device == Device{} ? "the host" : fmt::format("the host or {}", to_text(device)));
    const Status aligned = check_aligned(given->name, view);
    if (!aligned.ok()) return aligned.message();
    const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
    const auto end = begin + static_cast<std::uintptr_t>(extent_bytes(view).value());
    for (const Given* other = all.begin(); other != given; ++other) {
      const auto from = reinterpret_cast<std::uintptr_t>(other->view.data);
      const auto bytes = static_cast<std::uintptr_t>(extent_bytes(other->view).value());
      if (other->view && begin < from + bytes && from < end)
        return fmt::format("{} and {} overlap in memory. Give {} its own memory.", given->name,
                           other->name, given->name);
    }
  }
  return {};
}

}  // namespace

std::string Network::Impl::check(const Operands& operands) const {
  const auto& [images, logits, labels] = operands;
  if (!takes_images())
    return fmt::format(
        "images, logits and labels are of networks with one input and one output "
        "without time steps; this one has {} and {}. Run it with named tensors.",
        input_ports.size(), output_ports.size());
  const graph::Value& in = input();
  const Index h = in.h(), w = in.w(), c = in.channels();
  const bool values = in.type == DType::u8 && images.dtype == DType::f32;
  const bool vectors = h == 1 && w == 1;
  const bool fits = images.rank == 2 ? vectors && images.shape[1] == c
                                     : (images.rank == 4 || (images.rank == 3 && c == 1)) &&
                                           images.shape[1] == h && images.shape[2] == w &&
                                           (images.rank == 3 || images.shape[3] == c);
  const bool shape = (images.dtype == in.type || values) && images.contiguous() && fits &&
                     (images || images.shape[0] == 0);
  if (!shape)
    return fmt::format(
        "images: {}, expected {}[N,{},{},{}]{}, dense{}. Copy them into such an array.",
        describe(images), to_text(in.type), h, w, c,
        vectors  ? fmt::format(" (or [N,{}])", c)
        : c == 1 ? " (or without the last axis)"
                 : "",
        in.type == DType::u8 ? ", or f32 of that shape, normalised" : "");
  if (values && images && !(images.device == Device{}))
    return fmt::format(
        "images: {}, expected u8, because f32 images for this network are converted back to u8 on "
        "the host only. Give u8 pixels, or f32 images on the host.",
        describe(images));
  const Index n = images.shape[0];
  if (logits && (logits.dtype != DType::f32 || logits.rank != 2 || logits.shape[0] != n ||
                 logits.shape[1] != classes() || !logits.contiguous()))
    return fmt::format("logits: {}, expected f32[{},{}], dense.", describe(logits), n, classes());
  const graph::Value& end = output();
  if (labels && (end.h() != 1 || end.w() != 1))
    return fmt::format(
        "labels: the output of the last layer is {}x{}x{}, expected 1x1 with one channel per "
        "class. End the network with flatten and a linear layer, or ask for logits only.",
        end.h(), end.w(), end.channels());
  if (labels && (labels.dtype != DType::i32 || labels.rank != 1 || labels.shape[0] != n ||
                 !labels.contiguous()))
    return fmt::format("labels: {}, expected i32[{}], dense.", describe(labels), n);
  return check_memory({{"images", images}, {"logits", logits}, {"labels", labels}},
                      program.machine.device);
}

}  // namespace convoy
