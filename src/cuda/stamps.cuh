// How a kernel takes time stamps of itself (stamps.hpp), and how one that is not traced does not.
#pragma once

#include "cuda/stamps.hpp"

namespace convoy::cuda {

/// What a kernel that is not traced takes in their place: nothing, which compiles to nothing.
struct NoStamps {
  __device__ __forceinline__ void at(State, int = 0) {}
};

/// A thread's own track. Threads that lead none have no room and write nothing, without a branch:
/// between two wgmmas there may be none.
class Stamps {
 public:
  __device__ __forceinline__ Stamps(const StampBuffer& to, int track, bool leads)
      : next_(to.stamps + (blockIdx.x * to.tracks + track) * std::int64_t{to.capacity}),
        room_(leads ? to.capacity : 0) {
    std::uint32_t sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    at(State::placed, static_cast<int>(sm));
    at(State::setup);
  }
  __device__ __forceinline__ void at(State state, int value = 0) {
    asm volatile(
        "{.reg .pred p;\n.reg .u64 now, what;\n"
        "setp.gt.s32 p, %1, 0;\n"
        "mov.u64 now, %clock64;\n"
        "mov.b64 what, {%2, %3};\n"
        "@p st.global.v2.u64 [%0], {now, what};}" ::"l"(next_),
        "r"(room_), "r"(static_cast<std::uint32_t>(state)), "r"(value));
    ++next_;
    --room_;
  }

 private:
  Stamp* next_;
  int room_;
};

}  // namespace convoy::cuda
