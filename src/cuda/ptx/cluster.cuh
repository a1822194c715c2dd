// Clusters: CTAs that read and write each other's shared memory.
#pragma once

#include <cstdint>

namespace convoy::ptx {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits for all threads of the cluster, together in their warps or not. What they wrote before is
/// visible after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/// What lies at `address` of this CTA's shared memory, in that of another of the cluster.
__device__ __forceinline__ std::uint32_t in_cta(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__device__ __forceinline__ float load_cluster(std::uint32_t address) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_cluster(std::uint32_t address, std::uint32_t v) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

/// The same in this CTA's own, of what lies where others may look.
__device__ __forceinline__ void store_shared(std::uint32_t address, float v) {
  asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

/// An arrival at a barrier of any CTA of the cluster, after all that this thread's warp wrote
/// before it met.
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

/// mbarrier_wait for arrivals from the cluster: what they wrote is visible after.
__device__ __forceinline__ void mbarrier_wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

}  // namespace convoy::ptx
