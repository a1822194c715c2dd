// Shared memory by address, as instructions take it.
#pragma once

#include <cstdint>

namespace convoy::ptx {

__device__ __forceinline__ void store_shared(std::uint32_t address, float v) {
  asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

}  // namespace convoy::ptx
