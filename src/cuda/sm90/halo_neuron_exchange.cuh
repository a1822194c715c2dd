// The steps of a place, taken by the CTAs of a cluster between them.
//
// Each CTA makes the sums of one step of the place, all accumulators of them. Membranes need the
// steps in order, but not the accumulators: each CTA does the neurons of a part of them, for all of
// the cluster's steps, and sends the spikes back to the CTA of their step, which pools and stores
// them. The same thread of each CTA has the same outputs, so that warps of one number wait for each
// other and for no one else.
//
//   CTA 0:  sums of step 0  -->  neurons of part 0, steps 0..3  -->  spikes of step 0, all parts
//   CTA 1:  sums of step 1       neurons of part 1, steps 0..3       spikes of step 1, all parts
//   ...
#pragma once

#include "cuda/ptx/cluster.cuh"
#include "cuda/sm90/halo_neuron_membranes.cuh"

namespace convoy::cuda::sm90 {

/// Where a thread's part of a CTA's exchange lies in shared memory (HaloExchange).
struct ExchangePlaces {
  std::uint32_t offered, answered;  // barriers: all sums are there, all spikes are
  std::uint32_t words, sums;        // of this thread, the first; from one to the next: `step`
  static constexpr std::uint32_t step = 4 * HaloExchange::threads;

  __device__ __forceinline__ explicit ExchangePlaces(const NeuronParams& p) {
    extern __shared__ std::uint8_t raw[];
    const std::uint32_t base = aligned(ptx::shared_address(raw));
    const int thread = threadIdx.x, warp = thread / 32;
    offered = base + p.exchange_offset + 2 * mbarrier_bytes * warp;
    answered = offered + mbarrier_bytes;
    words = base + p.words_offset + 4 * thread;
    sums = base + p.sums_offset + 4 * thread;
  }
};

/// By all threads of the cluster, before any of them exchanges.
__device__ __forceinline__ void init_exchange(const NeuronParams& p) {
  const ExchangePlaces places(p);
  if (threadIdx.x < HaloExchange::threads && threadIdx.x % 32 == 0) {
    const int arrivals = (p.every_lane ? 32 : 1) << p.spread;
    ptx::mbarrier_init(places.offered, arrivals);
    ptx::mbarrier_init(places.answered, arrivals);
    ptx::mbarrier_init_fence();
  }
  ptx::cluster_sync();
}

/// Arrives, for this warp, at the barrier of its number in each CTA. racecheck does not know that a
/// lane speaks for those that it met in __syncwarp, so for it all arrive, which takes 3 to 9 % of a
/// stage's time.
template <int Spread>
__device__ __forceinline__ void tell_cluster(const NeuronParams& p, std::uint32_t barrier) {
  __syncwarp();
  const std::uint32_t lane = threadIdx.x % 32;
  if (p.every_lane) {
#pragma unroll 1
    for (int cta = 0; cta < Spread; ++cta) ptx::mbarrier_arrive_cluster(ptx::in_cta(barrier, cta));
  } else if (lane < Spread) {
    ptx::mbarrier_arrive_cluster(ptx::in_cta(barrier, lane));
  }
}

/// A CTA leaves when all others of its cluster have answered, so that none of them reads its shared
/// memory afterwards. racecheck knows barriers of the cluster only.
__device__ __forceinline__ void end_exchange(const NeuronParams& p) {
  if (p.every_lane) ptx::cluster_sync();
}

/// A thread's spikes as bits, a quarter of its accumulators a word.
template <int N, int I>
struct SpikeBits {
  static constexpr int quarter = N * I / 8;
  static_assert(N * I % 8 == 0 && 2 * quarter <= 32,
                "the spikes of half the accumulators are a word");
  std::uint32_t words[4];

  struct Instruction {
    const std::uint32_t (&words)[4];
    int first;
    __device__ __forceinline__ float operator[](int e) const {
      const int spike = first + e;
      return (words[spike / quarter] >> spike % quarter & 1) != 0 ? 1.0f : 0.0f;
    }
  };
  __device__ __forceinline__ Instruction operator[](int i) const { return {words, i * N / 2}; }
};
template <int N, int I>
constexpr bool gives_spikes<SpikeBits<N, I>> = true;

/// One step of each CTA of the cluster: `sums` (with bias) of this CTA's, which is `to.step`, to
/// its `spikes`. `v` keeps the membranes of this CTA's part from call to call; `to`: the place in
/// the first step. `parity`: of the number of calls before.
template <int N, int I, int Spread>
__device__ __forceinline__ void step_together(const NeuronParams& p, float (&v)[N * I / 4],
                                              const float (&sums)[I][N / 2], const NeuronPlace& to,
                                              int g, std::uint32_t parity,
                                              SpikeBits<N, I>& spikes) {
  constexpr int part = N * I / 2 / Spread, step = ExchangePlaces::step;
  const ExchangePlaces places(p);
  const int rank = static_cast<int>(ptx::cluster_rank()), first = rank * part;
  const Membranes membranes(p, to, g);

  each_accumulator<N, I>(
      [&](int i, int e) { ptx::store_shared(places.sums + (i * (N / 2) + e) * step, sums[i][e]); });
  tell_cluster<Spread>(p, places.offered);

  const auto each_of_part = [&](auto body) {
#pragma unroll
    for (int j = 0; j < part; ++j) body(j, v[j]);
  };
  if (to.step == rank) {
    each_of_part([&](int j, float& its) {
      its = 0.0f;
      if (p.membrane_in == nullptr) return;
      const int accumulator = first + j;
      membranes.at(accumulator / (N / 2), accumulator % (N / 2),
                   [&](Index m) { its = p.membrane_in[m]; });
    });
  }
  ptx::mbarrier_wait_cluster(places.offered, parity);
#pragma unroll 1
  for (int turn = 0; turn < Spread; ++turn) {
    const std::uint32_t there = ptx::in_cta(places.sums + first * step, turn);
    std::uint32_t word = 0;
    with_charge(p.charge, [&]<Charge By>() {
      each_of_part([&](int j, float& its) {
        its = charged<By>(p, its, ptx::load_cluster(there + j * step));
        const float spike = math::fire(its, p.threshold);
        word |= spike != 0 ? 1u << j : 0u;
        its = math::reset(its, p.threshold, spike, p.soft);
      });
    });
    ptx::store_cluster(ptx::in_cta(places.words + rank * step, turn), word);
  }
  tell_cluster<Spread>(p, places.answered);
  if (p.membrane_out != nullptr && to.step - rank + Spread == p.turns) {
    each_of_part([&](int j, float& its) {
      const int accumulator = first + j;
      membranes.at(accumulator / (N / 2), accumulator % (N / 2),
                   [&](Index m) { p.membrane_out[m] = its; });
    });
  }

  ptx::mbarrier_wait_cluster(places.answered, parity);
#pragma unroll
  for (int from = 0; from < Spread; ++from) {
    const std::uint32_t word = ptx::load_shared(places.words + from * step);
#pragma unroll
    for (int i = 0; i < 4 / Spread; ++i)
      spikes.words[from * (4 / Spread) + i] = word >> i * SpikeBits<N, I>::quarter;
  }
}

}  // namespace convoy::cuda::sm90
