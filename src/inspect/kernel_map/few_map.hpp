// The map of the kernel `few`: by few_layout.hpp and few_thread.hpp of src/cuda/sm90, which the
// kernel is made of. A step is 64 input channels; all taps of all filters are columns of one
// product.
#pragma once

#include "cuda/sm90/few_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {

class FewMap final : public KernelMap {
 public:
  FewMap(const Stage& stage, const cuda::sm90::FewLayout& layout, const std::string& machine);

  std::vector<MapFact> facts() const override;
  std::vector<TilePlace> first_tiles(int count) const override;
  std::string order() const override;
  /// Of a flat layout (a 1x1) the product's register; else the thread that adds up the taps, whose
  /// numbers count its outputs.
  Accumulator accumulator(const OutputIndex& output) const override;
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override;
  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override;
  InputElement in_slot(const TilePlace& tile, Index step, int byte) const override;
  TilePlace tile_at(Index x, Index y) const override;
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override;
  SharedMemoryMap shared_memory() const override;
  Pipeline pipeline() const override;

  /// That a consumer's thread has, as accumulator() numbers them.
  int registers() const;

 private:
  /// An output in its tile: pixel of the tile and, where windows are pooled, which row of one.
  struct InTile {
    Index tile = 0;
    int x = 0, y = 0;
  };
  InTile in_tile(const OutputIndex& output) const;
  int taps() const { return static_cast<int>(stage().r * stage().s); }
  int window() const { return stage().pool ? 2 : 1; }
  int items() const;
  Index tiles_a_cta() const { return (tiles_ + grid_ - 1) / grid_; }
  int slot_begin(int slot) const;
  cuda::sm90::Place place(const TilePlace& tile) const;
  /// Pixel of the box whose products a tap of the output takes.
  int pixel_of(const InTile& at, const TapIndex& tap) const;
  /// A column of z: floats from its begin, for item `item` and tap 0.
  int z_of(int item) const;

  // Parts of shared_memory().
  std::vector<SharedRegion> regions() const;
  SharedAccess z_writes() const;
  SharedAccess z_reads() const;

  cuda::sm90::FewLayout l_;
  cuda::Divisor columns_, rows_, tile_w_, tile_h_;
  Index tiles_ = 1, grid_ = 1;
};

}  // namespace convoy::inspect
