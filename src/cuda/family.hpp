// What the families' ties to the planner (NAME_kernel.cpp) have in common.
#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/memory.hpp"

namespace convoy::cuda {

/// The type a stage multiplies in: that of its 16-bit input; for u8 the output's; else fp32.
/// Weights are rounded to it.
DType compute_type(const Stage& stage);

/// Weights in a device's memory.
struct DeviceWeights final : PackedWeights {
  explicit DeviceWeights(DeviceMemory memory_) : memory(std::move(memory_)) {}
  DeviceMemory memory;
};

/// Weights of the stage as a kernel wants them, rounded to the type that it multiplies in. They are
/// in the device's memory when this returns: `halo`, `pair`, `few` and `first` read them before
/// what their stream holds already is done. So nobody may write to them later, not even on that
/// stream.
std::shared_ptr<const DeviceWeights> pack_rounded(const Stage& stage, std::span<const float> values,
                                                  int device);
/// The same of [K,R,S,C/groups] as they came, the rounded values held in fp32.
std::shared_ptr<const DeviceWeights> pack_widened(const Stage& stage, const float* w, int device);

/// A cost from its predicted seconds: bytes that a run must move, operations with `waste` (a share)
/// of them thrown away.
Cost cost_of(const Stage& stage, double seconds, double waste);

/// Every size of a legal stage that the fast families' 32-bit positions, or TMA's strides below
/// 2^40 bytes, do not hold; empty: all fit.
std::vector<std::string> too_large(const Stage& stage);

/// Fast families count tiles in 32 bits, and divide their numbers by the number in a row, in
/// a column and of channel blocks (cuda/divide.hpp): whether all that is exact for these.
bool countable(std::initializer_list<Index> tiles_along_axes);
inline constexpr const char* too_many_tiles = "more tiles than the kernel's 32-bit numbers count";

/// Vector loads and stores want tensors on `bytes`, pixels too. Says which is not, and what to do.
Status check_alignment(std::string_view kernel, std::string_view operand, const void* data,
                       Index pixel_stride, DType dtype, int bytes);
/// TMA wants 16.
Status check_16_bytes(std::string_view kernel, std::string_view operand, const void* data,
                      Index pixel_stride, DType dtype);

/// The one tile of a kernel that runs another family inside: that family's best predicted one (they
/// come in that order), under the name "best". What is slow in it shows in the family's own tiles.
Tile best_tile(const Kernel& family, const Stage& stage, const Machine& machine);

inline cudaStream_t stream_of(const RunArgs& args) {
  return static_cast<cudaStream_t>(args.stream);
}

}  // namespace convoy::cuda
