// mma.sync and ldmatrix: 16x8x16 products of f16 or bf16 and 16x8x8 products of tf32 with fp32
// sums, by one warp, from 8.0 on. Which lane holds what: src/cuda/sm80/spike_resident_index.hpp.
#pragma once

#include <cstdint>

namespace convoy::ptx {

/// c += a·b. a: 16x16, b: 16x8, c: 16x8.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&c)[4], const std::uint32_t (&a)[4],
                                                 std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&c)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c += a·b. a: 16x8, b: 8x8, in fp32 whose last 13 bits are not read. Lanes hold 32-bit values
/// where those of f16 hold pairs, so that ldmatrix loads them too.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&c)[4], const std::uint32_t (&a)[4],
                                                 std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Of f16, half the depth. a: 16x8, b: 8x8.
__device__ __forceinline__ void mma_m16n8k8_f16(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                                std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

/// Four 8x8 blocks of 16-bit values from shared memory. Lane 8m + r gives the address of row r of
/// block m, 16 bytes that lie on 16; of each block lane l gets elements (l/4, 2*(l%4)) and
/// (l/4, 2*(l%4)+1).
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&a)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(row)
               : "memory");
}

}  // namespace convoy::ptx
