// What surrounds wgmma: descriptors, fences, groups and register budgets.
#pragma once

#include <cstdint>

namespace convoy::ptx {

/// Shared-memory descriptor of a K-major operand in 128-byte swizzle: eight rows of 128 bytes form
/// a group, groups lie `group_stride` bytes apart. Add 2 for each 16 channels. The swizzle XORs
/// absolute address bits, so `address` may start at any row of a slot whose base is 1024-byte
/// aligned, and base_offset stays 0.
__device__ __forceinline__ std::uint32_t swizzled_low(std::uint32_t address) {
  return 1u << 16 | address >> 4;
}
__device__ __forceinline__ std::uint32_t swizzled_high(std::uint32_t group_stride) {
  return 1u << 30 | group_stride >> 4;
}
__device__ __forceinline__ std::uint64_t descriptor_base(std::uint32_t group_stride) {
  return std::uint64_t{swizzled_high(group_stride)} << 32 | swizzled_low(0);
}
__device__ __forceinline__ std::uint64_t descriptor(std::uint64_t base, std::uint32_t address) {
  return base | ((address & 0x3FFFF) >> 4);
}

/// Descriptor of a K-major operand without swizzle, in core matrices of eight rows of 16 bytes,
/// contiguous: `k_stride` bytes to the next eight channels, `group_stride` to the next eight rows.
/// Core matrices may overlap, which is how neighbouring taps read one stored image.
__device__ __forceinline__ std::uint64_t plain_descriptor(std::uint32_t address,
                                                          std::uint32_t k_stride,
                                                          std::uint32_t group_stride) {
  return std::uint64_t{group_stride >> 4} << 32 | std::uint64_t{k_stride >> 4} << 16 |
         ((address & 0x3FFFF) >> 4);
}

/// A descriptor from its halves: in a loop the low one moves (addresses in 16 bytes), the high one
/// never does.
__device__ __forceinline__ std::uint64_t descriptor_of(std::uint32_t low, std::uint32_t high) {
  std::uint64_t d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "r"(high));
  return d;
}

/// Orders this warpgroup's register and shared-memory accesses before its next wgmma.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` committed groups are unfinished.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Tells the compiler that wgmma may have changed these registers up to here; no instruction.
template <int N>
__device__ __forceinline__ void touch(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int Registers>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace convoy::ptx
