// Neurons(inner), INNER_neuron: a stage with a neuron as a convolution by `inner` and a pass over
// its sums in a cache.
//
// Of as many images as a part of the L3 holds it makes the sums of a step, lets the neurons take
// the step, pools their spikes, and goes on to the next step. With `hold` the sums are made once
// and all steps are taken on the way over them. Pools of whole 2x2 windows are taken in registers.
// Spikes are those of `inner`'s arithmetic.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cpu {

class Neurons final : public StageKernel {
 public:
  Neurons(std::string_view name, const Kernel& inner);

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override;
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override;
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override;

 private:
  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override;

  const Kernel& inner_;
};

}  // namespace convoy::cpu
