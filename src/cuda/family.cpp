#include "cuda/family.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/size.hpp"
#include "math/half.hpp"

namespace convoy::cuda {

DType compute_type(const Stage& stage) {
  const DType type = stage.dtype == DType::u8 ? stage.output_dtype(true) : stage.dtype;
  return type == DType::f16 || type == DType::bf16 ? type : DType::f32;
}

void upload_rounded(DType type, const float* values, std::size_t count, const DeviceMemory& to) {
  std::vector<std::uint16_t> rounded(count);
  for (std::size_t i = 0; i < count; ++i)
    rounded[i] =
        type == DType::bf16 ? math::float_to_bfloat(values[i]) : math::float_to_half(values[i]);
  to.upload(rounded.data(), count * sizeof(std::uint16_t));
}

void upload_weights(const Stage& stage, const float* w, bool widened, const DeviceMemory& to) {
  const DType type = compute_type(stage);
  const auto count = static_cast<std::size_t>(shapes_of(stage).w_elements);
  if (type == DType::f32) {
    to.upload(w, count * sizeof(float));
    return;
  }
  if (widened) {
    std::vector<float> rounded(count);
    for (std::size_t i = 0; i < count; ++i) rounded[i] = math::round_to(type, w[i]);
    to.upload(rounded.data(), count * sizeof(float));
    return;
  }
  upload_rounded(type, w, count, to);
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
        fmt::format("{}: its address {} is no multiple of {}, which kernel {} needs. Align it, or "
                    "plan with the kernel general.",
                    operand, data, bytes, kernel));
  if (pixel_stride * static_cast<Index>(size_of(dtype)) % bytes != 0)
    return Status(
        fmt::format("{}: its pixels lie {} elements of {} apart, no multiple of the {} bytes that "
                    "kernel {} needs. Change the slice, or plan with the kernel general.",
                    operand, pixel_stride, name(dtype), bytes, kernel));
  return {};
}

Status check_16_bytes(std::string_view kernel, std::string_view operand, const void* data,
                      Index pixel_stride, DType dtype) {
  return check_alignment(kernel, operand, data, pixel_stride, dtype, 16);
}

}  // namespace convoy::cuda
