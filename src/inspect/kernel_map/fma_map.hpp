// The map of the kernel `fma`: by fma_index.hpp and fma_thread.hpp of src/cuda/any, which the
// kernel is made of.
#pragma once

#include "cuda/any/fma_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {

class FmaMap final : public KernelMap {
 public:
  FmaMap(const Stage& stage, const cuda::FmaTile& tile, const std::string& machine);

  std::vector<MapFact> facts() const override;
  std::vector<TilePlace> first_tiles(int count) const override;
  std::string order() const override;
  DType output_type() const override;
  Accumulator accumulator(const OutputIndex& output) const override;
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override;
  /// A slot is one of the two arrays of pixels.
  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override;
  InputElement in_slot(const TilePlace& tile, Index step, int byte) const override;
  TilePlace tile_at(Index x, Index y) const override;
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override;
  SharedMemoryMap shared_memory() const override;
  Pipeline pipeline() const override;

 private:
  /// Where things begin in FmaShared, and how far apart they lie: bytes.
  struct Layout {
    int pixels = 0, pixels_slot = 0, pixels_row = 0;  // a row: the pixels of a product
    int filters = 0, filters_slot = 0, filters_row = 0;
    int rows = 0, y_at = 0, bytes = 0;
  };
  static Layout layout_of(const cuda::FmaTile& tile);

  bool pooled() const { return at_.rows.window > 1; }
  int across() const { return tile_of_.n / tile_of_.thread_n; }
  int copies() const { return tile_of_.m / cuda::fma_rows_between; }  // pixels of a thread, a step
  int fours() const { return tile_of_.n / 4; }
  cuda::FmaCta cta_of(const TilePlace& tile) const;
  /// The tap that a thread of this product is at, as it walks.
  math::ConvTap<int> walked(int product, Index step) const;
  /// What row `row` of the tile reads with a tap.
  InputElement read_by(const cuda::FmaCta& cta, int row, const math::ConvTap<int>& tap) const;

  // Parts of thread_step().
  std::vector<std::string> weight_notes(const cuda::FmaCta& cta, int thread, Index step) const;

  // Parts of shared_memory().
  std::vector<SharedRegion> regions() const;
  std::vector<SharedAccess> accesses() const;
  std::vector<AccumulatorRow> accumulator_rows() const;
  std::vector<std::string> epilogue_text() const;

  cuda::FmaTile tile_of_;
  cuda::FmaSizes at_;
  Layout l_;
  math::ConvAxis<int> in_rows_, in_columns_;
  Strides x_;  // dense
  int size_;   // bytes of an element of x
};

}  // namespace convoy::inspect
