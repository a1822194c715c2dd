// Weights of a plan on a GPU that are packed again and again, on the GPU and in the order of a
// stream: the host neither reads them nor waits.
//
// A kernel's packing only moves values (`Prepared::laid_out`). So packing numbers instead of
// weights tells for each packed value which weight it is: that is a map, made once for a way that
// the weights lie, and one kernel follows it at each call.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "convoy/tensor.hpp"
#include "core/kernel.hpp"

namespace convoy {

/// Which value of its source each value of a block is, and -1 for what is always 0. `sources` is
/// how many values the source has: w, or its transforms.
std::vector<Index> sources_of(const Prepared& prepared, std::size_t block, Index sources);

class Repack {
 public:
  /// Packs zeros, to have memory of the kernel's layout that nobody else writes to. Throws Error if
  /// the kernel's packed weights have no blocks, or memory runs out.
  Repack(const Prepared& prepared, const Stage& stage, Device device, bool flips);

  /// The memory that `fill` writes to: for `Prepared::use`.
  const std::shared_ptr<const PackedWeights>& weights() const { return weights_; }

  /// Enqueues the packing of weights [K,R,S,C/groups] on the device, whatever their strides. All
  /// that is put on the stream later reads the new weights. The first call, and one for weights
  /// that lie otherwise than those before, makes a map: it waits for the GPU, and throws Error if
  /// the stream is being captured.
  void fill(const Prepared& prepared, const TensorView& weights, Stream stream);

 private:
  void make_maps(const Prepared& prepared, const TensorView& weights, Stream stream);

  Stage stage_;
  Device device_;
  bool flips_;
  std::shared_ptr<const PackedWeights> weights_;
  std::array<Index, 4> strides_{};  // of the weights that the maps are of
  std::vector<Tensor> maps_;        // one per block; empty: there are none yet
};

}  // namespace convoy
