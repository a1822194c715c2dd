// The seam to the GPU code: what the core and the planner ask of it. src/cuda/gpu.cpp answers in a
// build with CUDA, src/core/no_gpu.cpp in one without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "convoy/tensor.hpp"
#include "core/kernel.hpp"
#include "core/machine.hpp"

namespace convoy::gpu {

/// What is here, for people. Never throws for what is missing: it says so.
struct Survey {
  std::string compiled;  // the GPUs that this build has code for; empty: none
  std::string driver;    // "13.0", the CUDA version it serves; empty: there is none
  std::vector<Machine> machines;
  std::string why_none;  // where there is no machine: why, and what to do
};
Survey survey();

/// The GPU of that number. Facts are read once a process. Throws Error that says what is there.
Machine machine(int index);

/// Memory on a GPU, 256-byte aligned, zero-filled. `what` names it in the Error thrown when there
/// is no such device or not enough memory.
void* allocate(Device device, std::size_t bytes, const std::string& what);
void release(Device device, void* memory) noexcept;

/// Rows of `row_bytes`, each at its pitch. At least one side is on a GPU.
struct CopyRows {
  const void* from = nullptr;
  void* to = nullptr;
  Device from_device, to_device;
  std::size_t row_bytes = 0, rows = 1, from_pitch = 0, to_pitch = 0;
};
/// Enqueued on the stream; where one side is the host, complete on return. Throws Error.
void copy(const CopyRows& rows, Stream stream);

/// Waits for all work of the stream. Throws Error with what went wrong in it.
void synchronize(Device device, Stream stream);

/// Seconds that the GPU spent on what `enqueue` put on the stream, in all. Throws Error.
double time(Device device, Stream stream, const std::function<void()>& enqueue);

/// One block of packed weights from weights on the device (plan/repack.hpp).
struct Fill {
  const void* from = nullptr;  // the first weight
  DType from_type = DType::f32;
  /// One entry per packed value: how many elements from the first its weight lies, or, for
  /// transforms, which of [36 K, C] it is; -1: it is 0.
  const std::int32_t* map = nullptr;
  PackedBlock to;
  /// On the device: nothing is packed while it is 0; null: always packed.
  const std::int32_t* changed = nullptr;
  // For transforms only: how the weights [K,3,3,C] lie, and how far from the first the first tap
  // is.
  Index k = 0, c = 0, origin = 0;
  std::array<Index, 4> stride{};
};
/// Enqueues it behind all that the stream holds. Throws Error.
void fill(Device device, Stream stream, const Fill& fill);
/// Sets the flags from `changed` on to 0, and is what no later kernel overlaps with: kernels that
/// read their weights before the work in front of them is done find them filled. Throws Error.
void finish_fills(Device device, Stream stream, std::int32_t* changed, Index flags = 1);

/// A fingerprint of memory on a device, by which its stream sees that the memory holds something
/// else. All pointers are to memory on the device.
struct Watch {
  const void* from = nullptr;
  std::size_t bytes = 0;
  std::uint64_t meaning = 0;   // the same bytes of another meaning (type, order) count as changed
  void* seen = nullptr;        // watch_sum_bytes per chunk of watch_chunk bytes, of the last call
  const void* keys = nullptr;  // watch_key_bytes, random
  std::int32_t* changed = nullptr;  // becomes 1 if a chunk's fingerprint is not the one of `seen`
};
constexpr std::size_t watch_chunk = 32768, watch_sum_bytes = 16;
constexpr std::size_t watch_key_bytes = watch_chunk + watch_sum_bytes;
/// Enqueues the comparison, which writes the new fingerprints to `seen`. Throws Error.
void compare(Device device, Stream stream, const Watch& watch);
/// Enqueues that the next comparison finds changes. Throws Error.
void forget(Device device, Stream stream, void* seen, std::size_t bytes);

/// A batch-norm that is folded into the weights while they are packed. Vectors are on the device,
/// [filters], and absent ones have no data. Without mean and variance nothing is folded, and a
/// shift is the bias in fp32.
struct FoldedNorm {
  struct Vector {
    const void* data = nullptr;
    DType type = DType::f32;
  };
  Vector bias;  // of the convolution
  Vector gamma, beta, mean, variance;
  float eps = 0;
  float* shift = nullptr;  // receives the folded bias in fp32, [filters]; null: there is none
  Index filters = 0;
};
/// One block of packed weights among those of many plans.
struct GroupFill {
  Fill fill;                  // with `changed`
  FoldedNorm norm;            // without variance: no norm is folded
  Index filter_elements = 0;  // between the first weights of two filters
  bool shifts = false;        // whether this block's work includes norm.shift
};
/// Rows on a device, of a layout that only src/cuda knows.
struct Table {
  Tensor rows;
  Index count = 0;
  int ctas = 0;  // that work on it
};
/// A row per chunk of memory. Waits for the device. Throws Error.
Table watch_table(Device device, std::span<const Watch> watches);
/// `compare` for all of the table, by one kernel. Throws Error.
void compare_group(Device device, Stream stream, const Table& watches, const void* keys);
/// A row per block. Waits for the device. Throws Error.
Table fill_table(Device device, std::span<const GroupFill> fills);
/// `fill` for all of the table, by one kernel. `changed`: all flags, so many. Throws Error.
void fill_group(Device device, Stream stream, const Table& fills, const std::int32_t* changed,
                Index flags);

/// What surrounds the layers of a network; enqueued on the stream. Each throws Error.
/// `count` u8 values of whole pixels to values [channels][256].
void values_of_pixels(Device device, Stream stream, const std::uint8_t* from, Index count,
                      Index channels, const float* values, float* to);
/// (x - mean) / std, which lie behind each other, [2][channels].
void normalise(Device device, Stream stream, const float* from, Index count, Index channels,
               const float* mean_and_std, float* to);
/// As network::mean_and_labels, whose bits it gives; `mean` and `labels` are not null.
void mean_and_labels(Device device, Stream stream, DType type, const void* outputs, Index steps,
                     Index n, Index classes, float* mean, std::int32_t* labels);

}  // namespace convoy::gpu
