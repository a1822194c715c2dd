// The map of the kernel `window` in its box tiles: by window_box.hpp and window_box_thread.hpp of
// src/cuda/sm80, which the kernel is made of. A tile is a box and a group; a step is a tap.
#pragma once

#include "cuda/sm80/window_box_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {

class WindowBoxMap final : public KernelMap {
 public:
  WindowBoxMap(const Stage& stage, const cuda::sm80::WindowTile& tile, const Machine& machine);

  std::vector<MapFact> facts() const override;
  std::vector<TilePlace> first_tiles(int count) const override;
  std::string order() const override;
  /// A thread's accumulators are those of each turn, one turn after the other: the same registers.
  Accumulator accumulator(const OutputIndex& output) const override;
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override;
  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override;
  InputElement in_slot(const TilePlace& tile, Index step, int byte) const override;
  TilePlace tile_at(Index x, Index y) const override;
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override;
  SharedMemoryMap shared_memory() const override;
  Pipeline pipeline() const override;

  static constexpr int registers = 16;  // of sums[2][2][4]
  /// Of 32 rows each, that a warp takes of a box at most.
  int turns() const;

 private:
  const cuda::sm80::WindowBox& box() const { return at_.box; }
  bool pooled() const { return box().window > 1; }
  int warps() const { return tile_of_.threads() / 32; }
  int boxes_of_cta() const;
  /// Bytes from the begin of shared memory: the table of rows comes first.
  int slot_begin(int slot) const { return 4 * box().table_rows() + slot * box().bytes(); }
  /// Pixels of a box that there are.
  int pixels_of(const math::ConvPixel<int>& first) const;
  /// What the copy to a byte of a slot brings: a row of the box's x, a column of it, a unit of the
  /// pixel. None for the gap behind a pixel, and for columns that fill a phase up.
  struct Copied {
    int row, column, unit;
  };
  std::optional<Copied> copied_to(int byte) const;
  InputElement read_by(const TilePlace& tile, const Copied& copy, int in_unit) const;
  std::string tap_text(Index step) const;

  // Parts of shared_memory().
  std::vector<SharedRegion> regions() const;
  SharedAccess copies() const;
  SharedAccess pixel_reads() const;
  SharedAccess weight_copies() const;
  SharedAccess weight_reads() const;

  cuda::sm80::WindowTile tile_of_;
  cuda::sm80::WindowSizes at_;
  int parts_ = 1, size_ = 2;
};

}  // namespace convoy::inspect
