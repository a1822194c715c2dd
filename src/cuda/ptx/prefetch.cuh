// prefetch: a line of global memory on its way to the L1, ahead of the load that wants it.
#pragma once

namespace convoy::ptx {

__device__ __forceinline__ void prefetch_l1(const void* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

}  // namespace convoy::ptx
