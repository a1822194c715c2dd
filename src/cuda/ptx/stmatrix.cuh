// stmatrix.trans: 8x8 blocks of 16-bit values from registers to shared memory, transposed. Lane l
// holds elements (l/4, 2*(l%4)) and (l/4, 2*(l%4)+1) of each block; column c of block m becomes the
// 16-byte row at the address that lane 8m + c gives.
#pragma once

#include <cstdint>

namespace convoy::ptx {

__device__ __forceinline__ void stmatrix_trans(std::uint32_t to, std::uint32_t a, std::uint32_t b,
                                               std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void stmatrix_trans(std::uint32_t to, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a),
               "r"(b)
               : "memory");
}

}  // namespace convoy::ptx
