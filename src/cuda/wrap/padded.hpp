// Padded(inner, multiple), INNER_padded: `inner` for channels and filters that are no multiples of
// what it wants, between copies in workspace that are. A side whose number is a multiple is left
// where it is.
#pragma once

#include "core/kernel.hpp"
#include "cuda/wrap/inner_stage.hpp"

namespace convoy::cuda {

class Padded final : public StageKernel {
 public:
  /// `multiple`: of 8 itself, which the copies move at a time.
  Padded(std::string_view name, const Kernel& inner, Index multiple)
      : StageKernel(inner.facts().called(name, served_by_padded(inner.facts().serves))),
        inner_(inner),
        multiple_(multiple) {}

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override;
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override;
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override;

 private:
  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override;

  const Kernel& inner_;
  Index multiple_;
};

}  // namespace convoy::cuda
