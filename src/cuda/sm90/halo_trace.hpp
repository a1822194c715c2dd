// Traced runs of the halo family: time stamps from inside the kernel. Kernels with stamps are
// compiled for f16 and for the accumulators that most stages are given.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "cuda/sm90/halo.hpp"
#include "cuda/stamps.hpp"

namespace convoy::cuda::sm90 {

inline constexpr std::array<Accumulator, 6> traced_accumulators{
    {{224, 1}, {128, 2}, {112, 2}, {128, 1}, {64, 1}, {32, 1}}};

/// What has a track in each CTA.
inline constexpr std::array halo_tracks{"consumer 0", "consumer 1", "pixels 0",
                                        "weights 0",  "pixels 1",   "weights 1"};

/// Why the tile's kernel takes no stamps, and which tiles of the stage do; empty: it does.
std::string why_no_halo_trace(const Stage& stage, const HaloTile& tile, const DeviceFacts& device);

/// As Prepared::trace. `launch` is made of the tile and the layout. Throws Error where memory runs
/// out, or the GPU does.
RunTrace trace_halo(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const HaloLaunch& launch, std::span<const NhwcRun, 2> runs,
                    const std::function<void()>& warm_up, const DeviceFacts& device,
                    cudaStream_t stream);

}  // namespace convoy::cuda::sm90
