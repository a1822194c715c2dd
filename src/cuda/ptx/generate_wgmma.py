#!/usr/bin/env python3
"""Writes wgmma.cuh: one wrapper for each N of wgmma.mma_async.m64nNk16 that the families use.

The instruction names every accumulator register in its text, so the wrappers can't be written once
for all N; a generator is shorter to check than a dozen hand-written lists.

    python3 generate_wgmma.py > wgmma.cuh
    python3 generate_wgmma.py registers > wgmma_registers.cuh      with A in registers
"""
import sys

NS = [16, 32, 56, 64, 112, 120, 128, 224, 256]  # those that the families instantiate
REGISTER_NS = [8, 32, 40, 72]  # the same with A in registers

HEAD = """// Written by generate_wgmma.py; change that, not this.
//
// D[64, N] += A[64, 16] * B[N, 16]^T for one warpgroup. A and B lie in shared memory, K-major, and are
// named by descriptors (warpgroup.cuh); D is N/2 fp32 registers a thread: d[4j + 2h + e] holds row
// 16*warp + lane/4 + 8h, column 8j + 2*(lane%4) + e. With keep == 0 the old D is ignored.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace convoy::ptx {

template <class T, int N>
struct Wgmma;
"""


def wrapper(n: int) -> str:
    regs = n // 2
    names = ", ".join(f"%{i}" for i in range(regs))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(regs))
    text = f"""
template <class T>
struct Wgmma<T, {n}> {{
  static __device__ __forceinline__ void mma(float (&d)[{regs}], std::uint64_t a, std::uint64_t b, int keep) {{
#define CONVOY_WGMMA(TYPE)                                                                        \\
  asm volatile(                                                                                   \\
      "{{.reg .pred p; setp.ne.b32 p, %{regs + 2}, 0;\\n"                                              \\
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32." TYPE "." TYPE                                 \\
      " {{{names}}}, %{regs}, %{regs + 1}, p, 1, 1, 0, 0;}}"   \\
      : {outs}   \\
      : "l"(a), "l"(b), "r"(keep))
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
    if constexpr (std::is_same_v<T, __half>) CONVOY_WGMMA("f16");
    else CONVOY_WGMMA("bf16");
#undef CONVOY_WGMMA
  }}
}};
"""
    return text


REGISTER_HEAD = """// Written by generate_wgmma.py; change that, not this.
//
// wgmma with A in registers, f16: of lane l of warp w, a[2u + h] holds row 16*w + l/4 + 8h, columns 8u + 2*(l%4) and
// the next. The rest is as in wgmma.cuh.
#pragma once

#include <cstdint>

namespace convoy::ptx {

template <int N>
struct WgmmaOfRegisters;
"""


def register_wrapper(n: int) -> str:
    regs = n // 2
    names = ", ".join(f"%{i}" for i in range(regs))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(regs))
    a = ", ".join(f"%{regs + i}" for i in range(4))
    return f"""
template <>
struct WgmmaOfRegisters<{n}> {{
  static __device__ __forceinline__ void mma(float (&d)[{regs}], const std::uint32_t (&a)[4],
                                             std::uint64_t b, int keep) {{
  asm volatile(
      "{{.reg .pred p; setp.ne.b32 p, %{regs + 5}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"
      " {{{names}}}, {{{a}}}, %{regs + 4}, p, 1, 1, 0;}}"
      : {outs}
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
  }}
}};
"""


if __name__ == "__main__":
    of_registers = "registers" in sys.argv[1:]
    head, wrap, ns = (REGISTER_HEAD, register_wrapper, REGISTER_NS) if of_registers else (HEAD, wrapper, NS)
    print(head + "".join(wrap(n) for n in ns) + "\n}  // namespace convoy::ptx")
