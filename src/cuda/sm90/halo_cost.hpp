// The halo family's cost model with other constants than its own, for what fits them.
#pragma once

#include "core/trace.hpp"
#include "cuda/sm90/costs.hpp"
#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {

/// Predicted seconds of one run with these constants.
double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const DeviceFacts& device, const HaloCosts& costs);

/// The same, with the family's own constants, as what lies before, in and behind the main loop.
Phases halo_phases(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                   const DeviceFacts& device);

}  // namespace convoy::cuda::sm90
