#include "cuda/family.hpp"

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "math/half.hpp"

namespace convoy::cuda {

namespace {

std::shared_ptr<DeviceWeights> room_for_weights(const Stage& stage, std::size_t count, DType held,
                                                int device) {
  return std::make_shared<DeviceWeights>(
      DeviceMemory(device, count * size_of(held), "the weights of " + to_text(stage)), held,
      compute_type(stage));
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

std::shared_ptr<const DeviceWeights> pack_widened(const Stage& stage, std::span<const float> values,
                                                  int device) {
  const DType type = compute_type(stage);
  std::vector<float> rounded(values.begin(), values.end());
  for (float& value : rounded) value = math::round_to(type, value);
  const auto weights = room_for_weights(stage, rounded.size(), DType::f32, device);
  weights->memory.upload(rounded.data(), rounded.size() * sizeof(float));
  return weights;
}

std::shared_ptr<const DeviceWeights> pack_values(const Stage& stage, std::span<const float> values,
                                                 DType held, int device) {
  return held == DType::f32 ? pack_widened(stage, values, device)
                            : pack_rounded(stage, values, device);
}

Error no_such_tile(std::string_view kernel, const Tile& tile, const Stage& stage) {
  return Error(
      fmt::format("{} has no tile \"{}\" ({}, {}, {}, {}) for {}: it is a tile of another stage. "
                  "Use a tile that the kernel lists for this stage (convoy explain).",
                  kernel, tile.name, tile.a, tile.b, tile.c, tile.d, to_text(stage)));
}

Tile best_tile(const Kernel& family, const Stage& stage, const Machine& machine) {
  Tile tile = family.tiles(stage, machine).front();
  tile.name = "best";
  return tile;
}

Status check_alignment(std::string_view kernel, std::string_view operand, const void* data,
                       Index pixel_stride, DType dtype, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) != 0)
    return Status(StatusCode::invalid_operand,
                  fmt::format("{}: its address is {}, expected a multiple of {} for kernel {}. "
                              "Align it, or plan with the kernel general.",
                              operand, data, bytes, kernel));
  if (pixel_stride * static_cast<Index>(size_of(dtype)) % bytes != 0)
    return Status(
        StatusCode::invalid_operand,
        fmt::format("{}: its pixels are {} elements of {} apart, expected a multiple of {} bytes "
                    "for kernel {}. Change the slice, or plan with the kernel general.",
                    operand, pixel_stride, to_text(dtype), bytes, kernel));
  return {};
}

Status check_16_bytes(std::string_view kernel, std::string_view operand, const void* data,
                      Index pixel_stride, DType dtype) {
  return check_alignment(kernel, operand, data, pixel_stride, dtype, 16);
}

}  // namespace convoy::cuda
