// What the families' ties to the planner (NAME_kernel.cpp) have in common.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convoy/error.hpp"
#include "core/kernel.hpp"
#include "cuda/memory.hpp"
#include "cuda/stage_facts.hpp"

namespace convoy::cuda {

/// Weights in a device's memory: one block.
struct DeviceWeights final : PackedWeights {
  DeviceWeights(DeviceMemory memory_, DType held_, DType rounded_)
      : memory(std::move(memory_)), held(held_), rounded(rounded_) {}
  std::vector<PackedBlock> blocks() const override {
    return {{.data = memory.data(),
             .count = static_cast<Index>(memory.bytes() / size_of(held)),
             .held = held,
             .rounded = rounded}};
  }
  DeviceMemory memory;
  DType held, rounded;
};

/// Weights of the stage as a kernel wants them, rounded to the type that it multiplies in. They are
/// in the device's memory when this returns: `halo`, `pair`, `few` and `first` read them before
/// what their stream holds already is done. Who writes to them later sees to it that no kernel
/// starts before the writes are done (gpu::finish_fills).
std::shared_ptr<const DeviceWeights> pack_rounded(const Stage& stage, std::span<const float> values,
                                                  int device);
/// The same, the rounded values held in fp32.
std::shared_ptr<const DeviceWeights> pack_widened(const Stage& stage, std::span<const float> values,
                                                  int device);

/// `pack_rounded` or, if they are held in fp32, `pack_widened`.
std::shared_ptr<const DeviceWeights> pack_values(const Stage& stage, std::span<const float> values,
                                                 DType held, int device);

/// Vector loads and stores want tensors on `bytes`, pixels too. Says which is not, and what to do.
Status check_alignment(std::string_view kernel, std::string_view operand, const void* data,
                       Index pixel_stride, DType dtype, int bytes);
/// TMA wants 16.
Status check_16_bytes(std::string_view kernel, std::string_view operand, const void* data,
                      Index pixel_stride, DType dtype);

/// The best predicted tile first; of equal ones the family's own order.
template <class Seconds>
std::vector<Tile> by_seconds(std::vector<Tile> tiles, const Seconds& seconds) {
  std::vector<std::pair<double, Tile>> timed;
  timed.reserve(tiles.size());
  for (Tile& tile : tiles) timed.emplace_back(seconds(tile), std::move(tile));
  std::ranges::stable_sort(timed, {}, &std::pair<double, Tile>::first);
  for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i] = std::move(timed[i].second);
  return tiles;
}

/// What is thrown for a tile that the family does not have for the stage: it is another stage's.
Error no_such_tile(std::string_view kernel, const Tile& tile, const Stage& stage);

/// The one tile of a kernel that runs another family inside: that family's best predicted one (they
/// come in that order), under the name "best". What is slow in it shows in the family's own tiles.
Tile best_tile(const Kernel& family, const Stage& stage, const Machine& machine);

inline cudaStream_t stream_of(const RunArgs& args) {
  return static_cast<cudaStream_t>(args.stream);
}

}  // namespace convoy::cuda
