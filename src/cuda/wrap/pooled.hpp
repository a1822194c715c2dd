// Pooled(inner), INNER_pool: what `inner` leaves out. It writes the convolution without its pool,
// and a pass over that, near the speed of a copy, gives any pool, its indices and the second
// outputs.
#pragma once

#include "core/kernel.hpp"
#include "cuda/wrap/inner_stage.hpp"

namespace convoy::cuda {

class Pooled final : public StageKernel {
 public:
  Pooled(std::string_view name, const Kernel& inner)
      : StageKernel(inner.facts().called(name, served_by_pooled(inner.facts().serves))),
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
