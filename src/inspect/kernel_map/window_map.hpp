// The map of the kernel `window`: by window_geometry.hpp, window_iterators.hpp and
// window_thread.hpp of src/cuda/sm80, which the kernel is made of.
#pragma once

#include "cuda/sm80/window_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {

class WindowMap final : public KernelMap {
 public:
  WindowMap(const Stage& stage, const cuda::sm80::WindowTile& tile, const std::string& machine);

  std::vector<MapFact> facts() const override;
  std::vector<TilePlace> first_tiles(int count) const override;
  std::string order() const override;
  Accumulator accumulator(const OutputIndex& output) const override;
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override;
  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override;
  InputElement in_slot(const TilePlace& tile, Index step, int byte) const override;
  TilePlace tile_at(Index x, Index y) const override;
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override;
  SharedMemoryMap shared_memory() const override;
  Pipeline pipeline() const override;

  const cuda::sm80::WindowSizes& sizes() const { return at_; }
  const cuda::sm80::WindowTile& window_tile() const { return tile_of_; }

 private:
  bool pooled() const { return at_.g.window > 1; }
  int size() const { return size_; }
  cuda::sm80::WindowCta cta_of(const TilePlace& tile) const;
  /// The geometry as CTA `tile` sees it: with the channels of its group.
  cuda::sm80::WindowGeometry geometry_of(const TilePlace& tile) const;
  std::string step_text(Index step) const;
  /// Bytes that dense pixels, or groups in them, lie apart, modulo 16.
  int to_piece() const;
  bool stores_16_bytes() const;  // of a dense y

  // Parts of shared_memory().
  std::vector<SharedRegion> regions() const;
  std::vector<SharedAccess> accesses() const;
  std::vector<AccumulatorRow> accumulator_rows() const;
  std::vector<std::string> epilogue_text() const;

  cuda::sm80::WindowTile tile_of_;
  cuda::sm80::WindowSizes at_;
  cuda::sm80::WarpsOfTile warps_;
  int size_ = 2;  // bytes of an element
};

}  // namespace convoy::inspect
