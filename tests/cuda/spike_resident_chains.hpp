// The chains that tests of `spike_resident` run. The first is the known network.
#pragma once

#include <vector>

#include "core/shape_list.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda::sm80 {

inline std::vector<OwnedChain> listed() {
  return read_chain_list(source_path("tests/cuda/spike_resident-stages.txt"), true);
}

}  // namespace convoy::cuda::sm80
