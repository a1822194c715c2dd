#include "cuda/family.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/size.hpp"
#include "math/half.hpp"

namespace convoy::cuda {

DType compute_type(const Stage& stage) {
  const DType type = stage.dtype == DType::u8 ? stage.output_dtype(true) : stage.dtype;
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return type;
    case DType::u8:
    case DType::i32:
      break;
  }
  throw Error(fmt::format("{}: no kernel multiplies {}", to_text(stage), to_text(type)));
}

namespace {

std::shared_ptr<DeviceWeights> room_for_weights(const Stage& stage, std::size_t count, DType type,
                                                int device) {
  return std::make_shared<DeviceWeights>(
      DeviceMemory(device, count * size_of(type), "the weights of " + to_text(stage)));
}

}  // namespace

std::shared_ptr<const DeviceWeights> pack_rounded(const Stage& stage, std::span<const float> values,
                                                  int device) {
  const DType type = compute_type(stage);
  const auto weights = room_for_weights(stage, values.size(), type, device);
  std::vector<std::byte> rounded(weights->memory.bytes());
  for (std::size_t i = 0; i < values.size(); ++i)
    math::store(type, rounded.data(), static_cast<Index>(i), values[i]);
  weights->memory.upload(rounded.data(), rounded.size());
  return weights;
}

std::shared_ptr<const DeviceWeights> pack_widened(const Stage& stage, const float* w, int device) {
  const DType type = compute_type(stage);
  std::vector<float> rounded(w, w + shapes_of(stage).w_elements);
  for (float& value : rounded) value = math::round_to(type, value);
  const auto weights = room_for_weights(stage, rounded.size(), DType::f32, device);
  weights->memory.upload(rounded.data(), rounded.size() * sizeof(float));
  return weights;
}

Cost cost_of(const Stage& stage, double seconds, double waste) {
  const Shapes shapes = shapes_of(stage);
  const auto bytes = [](Index elements, DType dtype) {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  };
  const double steps = stage.hold ? 1.0 : static_cast<double>(stage.t);
  Cost cost;
  cost.seconds = seconds;
  cost.waste = waste;
  cost.flops = 2.0 * static_cast<double>(shapes.macs) * steps / (1 - waste);
  cost.bytes = bytes(shapes.x_elements, stage.dtype) +
               bytes(shapes.w_elements, compute_type(stage)) +
               bytes(shapes.y_elements, stage.output_dtype(true));
  return cost;
}

std::vector<std::string> too_large(const Stage& stage) {
  constexpr Index most = Index{1} << 30, most_elements = Index{1} << 39;
  std::vector<std::string> why;
  const auto check = [&](const char* what, Index size, Index limit, const char* limit_text) {
    if (size > limit) why.push_back(fmt::format("{} {}, at most {} fit", what, size, limit_text));
  };
  const Shapes shapes = shapes_of(stage);
  check("N =", stage.n, most, "2^30");
  check("C =", stage.c, most, "2^30");
  check("K =", stage.k, most, "2^30");
  check("H, padded, and the filter's rows =",
        stage.h + stage.pad.top + stage.pad.bottom + stage.dil.h * stage.r, most, "2^30");
  check("W, padded, and the filter's columns =",
        stage.w + stage.pad.left + stage.pad.right + stage.dil.w * stage.s, most, "2^30");
  check("elements of x =", shapes.x_elements, most_elements, "2^39");
  check("elements of w =", shapes.w_elements, most_elements, "2^39");
  check("elements of the convolution's output =", shapes.pre_elements, most_elements, "2^39");
  check("elements of y =", shapes.y_elements, most_elements, "2^39");
  return why;
}

bool countable(std::initializer_list<Index> tiles_along_axes) {
  constexpr Index limit = Index{1} << 32;
  constexpr Index last_step = 1 << 16;  // by which a CTA's walk passes the last tile, and more
  Size all = 1;
  Index most = 1;
  for (const Index tiles : tiles_along_axes) {
    all *= tiles;
    most = std::max(most, tiles);
  }
  return all.fits(std::min(limit / 2 - last_step, limit / most) - 1);
}

Tile best_tile(const Kernel& family, const Stage& stage, const Machine& machine) {
  Tile tile = family.tiles(stage, machine).front();
  tile.name = "best";
  return tile;
}

Status check_alignment(std::string_view kernel, std::string_view operand, const void* data,
                       Index pixel_stride, DType dtype, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) != 0)
    return Status(
        StatusCode::invalid_operand,
        fmt::format("{}: its address {} is no multiple of {}, which kernel {} needs. Align it, or "
                    "plan with the kernel general.",
                    operand, data, bytes, kernel));
  if (pixel_stride * static_cast<Index>(size_of(dtype)) % bytes != 0)
    return Status(
        StatusCode::invalid_operand,
        fmt::format("{}: its pixels lie {} elements of {} apart, no multiple of the {} bytes that "
                    "kernel {} needs. Change the slice, or plan with the kernel general.",
                    operand, pixel_stride, to_text(dtype), bytes, kernel));
  return {};
}

Status check_16_bytes(std::string_view kernel, std::string_view operand, const void* data,
                      Index pixel_stride, DType dtype) {
  return check_alignment(kernel, operand, data, pixel_stride, dtype, 16);
}

}  // namespace convoy::cuda
