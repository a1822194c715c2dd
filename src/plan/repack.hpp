// Weights of a plan on a GPU that are packed again and again, on the GPU and in the order of a
// stream: the host neither reads them nor waits.
//
// A kernel's packing only moves values (`Prepared::laid_out`). So packing numbers instead of
// weights tells for each packed value which weight it is: that is a map, made once for each order
// of the weights in memory, and one kernel follows it. Another kernel, in front of it, compares the
// weights with a fingerprint of those that were packed last: while they are the same, nothing is
// packed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "convoy/tensor.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"
#include "core/kernel.hpp"

namespace convoy {

/// Which value of its source each value of a block is, and -1 for what is always 0. `sources` is
/// how many values the source has: w, or its transforms.
std::vector<Index> sources_of(const Prepared& prepared, std::size_t block, Index sources);

/// One plan's part of the tables of a RepackGroup.
struct GroupPart {
  std::vector<gpu::Watch> watches;
  std::vector<gpu::GroupFill> fills;
};

class Repack {
 public:
  /// Packs zeros, to have memory of the kernel's layout that nobody else writes to. Throws Error if
  /// the kernel's packed weights have no blocks, or memory runs out.
  Repack(const Prepared& prepared, const Stage& stage, Device device, bool flips);

  /// The memory that `fill` writes to: for `Prepared::use`.
  const std::shared_ptr<const PackedWeights>& weights() const { return weights_; }

  /// Enqueues the packing of weights [K,R,S,C/groups] on the device, whatever their strides, if
  /// they are not those that were packed last; weights with gaps between them are always packed.
  /// All that is put on the stream later reads the new weights. The first call for an order of the
  /// weights in memory makes its map: it waits for the GPU, and throws Error if the stream is being
  /// captured.
  ///
  /// A fill on another stream than the one before waits for that: it compares with fingerprints of
  /// weights that are packed by then. A captured fill has no such order.
  void fill(const Prepared& prepared, const ConstTensorView& weights, Stream stream);

  /// What a RepackGroup does instead of `fill`; both share fingerprints, so that they may take
  /// turns. `changed`: this plan's flag. Nothing if the weights have gaps between them, or the norm
  /// is there and the filters don't lie one behind the other. Throws as the first `fill`.
  std::optional<GroupPart> part(const Prepared& prepared, const ConstTensorView& weights,
                                const gpu::FoldedNorm& norm, std::int32_t* changed, Stream stream);
  const void* keys() const { return keys_.data<std::uint8_t>(); }

  /// Holds the stream back behind the last fill, if that was on another one.
  void follow(gpu::StreamFacts facts, Stream stream) const;
  /// The event is behind a fill on that stream.
  void filled(std::shared_ptr<gpu::Event> event, gpu::StreamFacts facts);

 private:
  using Strides = std::array<Index, 4>;
  struct Order {
    std::uint64_t number = 0;  // in the order of the first calls, from 1
    std::vector<Tensor> maps;  // one per block
  };
  const Order& order_of(const Prepared& prepared, const ConstTensorView& weights, Stream stream);
  std::vector<Tensor> maps_of(const Prepared& prepared, const ConstTensorView& weights) const;
  void make_watch();
  gpu::Watch watch_of(const ConstTensorView& weights, std::uint64_t order);
  void add_vectors(const gpu::FoldedNorm& norm, GroupPart& part);
  gpu::Fill fill_of(const Order& order, std::size_t block, const ConstTensorView& weights) const;

  Stage stage_;
  Device device_;
  bool flips_;
  std::shared_ptr<const PackedWeights> weights_;
  std::map<Strides, Order> orders_;  // all stay: CUDA graphs may have captured fills by them
  // What gpu::Watch needs, since the first fill. seen_ has the fingerprints of the weights, then
  // those of a group's norm, sums_of_vector_ for each vector.
  Tensor seen_, keys_, changed_;
  Index sums_of_weights_ = 0, sums_of_vector_ = 0;
  std::shared_ptr<gpu::Event> own_, last_;  // last_: behind the last fill
  gpu::StreamFacts last_facts_;
};

}  // namespace convoy
