// The map of the kernel `halo`, or of its f32 sums inside `halo_neuron_pass`: by halo_layout.hpp
// and halo_thread.hpp of src/cuda/sm90, which the kernel is made of.
#pragma once

#include "cuda/sm90/halo_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {

class HaloMap final : public KernelMap {
 public:
  /// The layout must be halo_layout(stage, tile, ...) with x_slots > 0.
  HaloMap(const Stage& stage, const cuda::sm90::HaloTile& tile,
          const cuda::sm90::HaloLayout& layout, const std::string& machine);

  std::vector<MapFact> facts() const override;
  std::vector<TilePlace> first_tiles(int count) const override;
  std::string order() const override;
  Accumulator accumulator(const OutputIndex& output) const override;
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override;
  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override;
  /// `step` is a slab of weights, and the slot the one whose pixels it reads.
  InputElement in_slot(const TilePlace& tile, Index step, int byte) const override;
  TilePlace tile_at(Index x, Index y) const override;
  TilePlace in_step(const TilePlace& tile, Index t) const override;
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override;
  SharedMemoryMap shared_memory() const override;
  Pipeline pipeline() const override;

  const cuda::sm90::HaloLayout& layout() const { return l_; }
  const cuda::sm90::HaloTile& halo_tile() const { return tile_of_; }

  /// Where a pixel of a warpgroup's tile is among its accumulators: instruction and column.
  struct Column {
    int instruction = 0, column = 0;
  };
  /// And back: the pixel of a warpgroup's tile, from the tile's first one.
  struct InTile {
    int x = 0, y = 0, n = 0, t = 0;
  };
  Column column_of(const InTile& at) const;
  InTile pixel_of(const Column& at) const;
  /// Byte in its slot, before the swizzle, of the row that a column reads with tap number `tap` of
  /// the slot's table.
  int row_byte(int warpgroup, int tap, const Column& at) const;
  /// The same bytes as they lie: 128-byte rows, swizzled.
  static int swizzled128(int byte) { return byte ^ ((byte >> 7 & 7) << 4); }

 private:
  bool line() const { return tile_of_.inner == cuda::sm90::Inner::line; }
  bool neuron() const { return stage().act.is_neuron(); }
  bool sums() const { return cuda::sm90::gives_sums(stage()); }
  /// Steps of a neuron that the sums of a tile serve.
  Index held() const { return neuron() && stage().hold ? stage().t : 1; }
  /// The tile that CTA t % grid takes as its number t / grid.
  TilePlace tile_of_number(int number) const;
  /// Place in y number `place` (channel blocks fastest), in a time step.
  TilePlace tile_of_place(int place, Index t) const;
  cuda::sm90::Place place(const TilePlace& tile) const;
  /// The warpgroup that has a pixel and channel of a tile, and the pixel in its part.
  int warpgroup_of(const TilePlace& tile, int channel, const InTile& pixel) const;
  /// Coordinates of a TMA load.
  struct Box {
    int c0, c1, c2, c3, c4;
  };
  /// All of them that fill the slot of a load of the tile, in order.
  struct SlotLoads {
    int first_chunk = 0, first_box = 0;
    std::vector<Box> boxes;
  };
  SlotLoads loads_of(const TilePlace& tile, Index load) const;
  InputElement in_box(const Box& from, int row, int channel) const;
  std::string tap_text(int tap) const;
  int slot_of_step(Index step) const;
  Index load_of_step(Index step) const;

  /// In the slot's table: of a slab of weights.
  int first_tap_of(Index slab) const;

  // Parts of thread_step(): of the two kinds of producers, of which there are two each, and of
  // consumers.
  ThreadStep pixels_step(const TilePlace& tile, int number, Index step) const;
  ThreadStep weights_step(const TilePlace& tile, int number, Index step) const;
  ThreadStep consumer_step(const TilePlace& tile, int thread, Index step) const;

  // What a neuron adds to facts(), regions(), actors() and a consumer's step.
  std::vector<MapFact> neuron_facts() const;
  std::string neuron_does() const;
  std::vector<std::string> neuron_notes(const TilePlace& tile) const;
  std::string charge_text() const;

  // Parts of shared_memory().
  std::vector<SharedRegion> regions() const;
  SharedAccess pixel_reads() const;
  /// How a result of a warpgroup gets to y.
  std::string stored_text(int warpgroup) const;
  SharedAccess result_writes() const;
  SharedAccess sums_writes() const;
  std::vector<AccumulatorRow> accumulator_rows() const;
  std::vector<std::string> epilogue_text() const;
  std::vector<std::string> sums_epilogue_text() const;

  // Parts of pipeline().
  /// How many loads of a CTA are worth a line: those of two tiles, where it takes several.
  struct Loads {
    Index pixels = 0, weights = 0;
  };
  std::vector<PipelineActor> actors() const;
  PipelineLoad pixel_load(Index load) const;
  PipelineLoad weight_load(Index slab) const;
  std::vector<PipelineLine> prologue(const Loads& loads) const;
  PipelineLine line_of_step(Index step, const Loads& loads) const;

  cuda::sm90::HaloTile tile_of_;
  cuda::sm90::HaloLayout l_;
  cuda::Divisor by_k_, by_x_, by_y_;
  int places_ = 1, grid_ = 1, tiles_ = 1;
  int turns_ = 1;  // tiles of a place
  cuda::Divisor by_grid_, by_turns_;
};

}  // namespace convoy::inspect
