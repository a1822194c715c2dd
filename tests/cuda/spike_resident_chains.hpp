// The chains that tests of `spike_resident` run. The first is the known network.
#pragma once

#include <vector>

#include "bench/fit/h200.hpp"
#include "core/shape_list.hpp"
#include "cuda/families.hpp"
#include "math/half.hpp"
#include "verify/draw_chain.hpp"
#include "verify/source_path.hpp"

namespace convoy::cuda::sm80 {

inline std::vector<OwnedChain> listed() {
  return read_chain_list(source_path("tests/cuda/spike_resident-stages.txt"), true);
}

/// Every reason why an H200 can't run the chain; empty: it can.
inline Reasons resident_refusals(const Chain& chain) {
  return spike_resident().refusals(chain, machine_of(h200()));
}

/// Rounds all weights to f16, so that the kernel's one-term code holds them exactly.
inline void round_weights(verify::ChainInputs& inputs) {
  for (Tensor& w : inputs.weights)
    for (Index i = 0; i < w.elements(); ++i)
      w.data<float>()[i] = math::round_to(DType::f16, w.data<float>()[i]);
}

}  // namespace convoy::cuda::sm80
