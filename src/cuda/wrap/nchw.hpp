// Nchw(inner), INNER_nchw: an NHWC kernel between two transpositions, in workspace of the plan. A
// side whose bytes are the same in both layouts (one pixel, or one channel) is left where it is,
// and a kernel that reads any strides reads NCHW in place.
#pragma once

#include "core/kernel.hpp"
#include "cuda/wrap/inner_stage.hpp"

namespace convoy::cuda {

class Nchw final : public StageKernel {
 public:
  /// How the inner kernel reads x: with C dense, or with any strides.
  enum Reads { dense_x, strided_x };
  Nchw(std::string_view name, const Kernel& inner, Reads reads = dense_x)
      : StageKernel(inner.facts().called(name, served_by_nchw(inner.facts().serves))),
        inner_(inner),
        strided_x_(reads == strided_x) {}

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override;
  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override;
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override;

 private:
  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override;

  const Kernel& inner_;
  bool strided_x_;
};

}  // namespace convoy::cuda
