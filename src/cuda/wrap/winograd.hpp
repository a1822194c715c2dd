// Winograd(inner), kernel `winograd4`: 3x3 stages of f32 by F(4x4, 3x3), a quarter of the
// multiplications. `inner` makes the sums of products, as a 1x1 stage of 36 groups over tiles,
// between a pass that transforms the images and one that transforms the sums and does all that
// follows. Images go through in chunks whose transforms lie in workspace.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cuda {

class Winograd final : public StageKernel {
 public:
  /// inner: one that runs f32 stages of groups.
  Winograd(std::string_view name, std::string_view arithmetic, const Kernel& inner);

  /// By the bytes of a chunk's transforms.
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override;
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override;
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override;

 private:
  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override;

  const Kernel& inner_;
};

}  // namespace convoy::cuda
