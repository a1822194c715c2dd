// Fired(inner), INNER_neuron_pass: a stage with a neuron as a convolution of all steps' images by
// `inner`, which writes f32 sums to workspace, and a pass over them. The convolution may take any
// tile, as steps order nothing in it; the sums are to stay in the L2. Spikes are those of `inner`'s
// arithmetic. Pools other than max 2x2 and their indices take a further pass.
#pragma once

#include "core/kernel.hpp"
#include "cuda/wrap/inner_stage.hpp"

namespace convoy::cuda {

class Fired final : public StageKernel {
 public:
  Fired(std::string_view name, const Kernel& inner)
      : StageKernel(inner.facts().called(name, served_by_fired(inner.facts().serves))),
        inner_(inner) {}

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override;
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override;
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override;

 private:
  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override;

  const Kernel& inner_;
};

}  // namespace convoy::cuda
