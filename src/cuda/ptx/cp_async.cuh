// cp.async: global to shared memory in the background, each thread on its own, from 8.0 on.
#pragma once

#include <cstdint>

namespace convoy::ptx {

__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/// Copies `valid` of `Bytes` bytes (4, 8 or 16, on which both addresses lie), and clears the rest.
template <int Bytes>
__device__ __forceinline__ void cp_async_or_zero(std::uint32_t to, const void* from, int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
               "r"(valid)
               : "memory");
}
/// Copies 16 bytes past the L1, or clears them.
__device__ __forceinline__ void cp_async_16_or_zero(std::uint32_t to, const void* from,
                                                    bool valid) {
  asm volatile(
      "{\n"
      ".reg .pred ignored;\n"
      "setp.eq.u32 ignored, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, ignored;\n"
      "}" ::"r"(to),
      "l"(from), "r"(static_cast<std::uint32_t>(valid))
      : "memory");
}
/// What a copy would have brought, from registers.
__device__ __forceinline__ void store_shared_16(std::uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
/// Copies begun since the last call are a group.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all groups of this thread but the last `Left`.
template <int Left>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

}  // namespace convoy::ptx
