// The rule for spikes: where a network may differ from the reference, and where it may not.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "convoy/network.hpp"

namespace convoy {

struct SpikeCheck {
  Index compared = 0;      // pooled spikes, all layers, steps and images
  Index excused = 0;       // differ, with a membrane within 1e-5 * max(1, |th|) of the threshold
  std::set<Index> images;  // that have an excused spike
  std::vector<std::string> wrong;  // differ without an excuse; the first few
  double logit_error = 0;  // largest difference of the mean outputs, over the largest output
};

/// Runs the images and compares each layer with the reference computed on that layer's own input,
/// so that an excused difference does not spread to the next layer.
SpikeCheck check_spikes(const Network& network, const std::string& folder,
                        const ConstTensorView& images);

}  // namespace convoy
