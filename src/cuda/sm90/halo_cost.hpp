// The halo family's cost model with other constants than its own, for what fits them.
#pragma once

#include "cuda/sm90/costs.hpp"
#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {

/// Predicted seconds of one run with these constants.
double halo_seconds(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                    const DeviceFacts& device, const HaloCosts& costs);

}  // namespace convoy::cuda::sm90
