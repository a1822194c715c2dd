// How the kernels `direct` and `first` walk over a stage: bands of output rows, each
// packed once into a thread's own scratch, then register tiles over its pixels for each block of
// filters.
#pragma once

#include <vector>

#include "core/buffer.hpp"
#include "core/kernel.hpp"
#include "cpu/padded_rows.hpp"
#include "cpu/register_tile.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {

/// Rows of the output at least so wide run as tiles of neighbours: each has at least one.
inline constexpr Index min_row_pixels = 2 * max_tile_pixels;

/// A convolution stage bound to register tiles; how a sum is made is theirs.
class Bands : public Prepared {
 public:
  /// `vectors`: of filters in a tile, at most. The stage must pass `refusals_of_bands`.
  Bands(const Stage& stage, const Machine& machine, int vectors);
  void set_weights(const float* w) override;
  std::size_t workspace_bytes() const override;
  Status run(const RunArgs& given) const noexcept override;

  struct Block {
    Index group = 0, first = 0, count = 0;  // filters [first, first + count)
    int vectors = 0;
    Index width = 0;
    std::size_t weights = 0;  // where its packed weights begin, floats
    std::size_t bias = 0;     // the same for its padded bias
  };
  /// Tasks: bands of rows or of pixels as equal as can be, of at most so many output rows, or of so
  /// many rows that are whole images; and parts that the filters are split into.
  struct Cut {
    Index rows = 1, splits = 1, bands = 1;
    bool by_pixels = false, by_images = false;
  };
  /// Of a run of n images.
  Cut cut(Index n) const;

 private:
  // Consecutive output rows of one image that a task computes.
  struct Piece {
    Index image = 0;
    math::PoolSpan rows;
    // Its pixels, from the first of these rows on: all, but where tasks are cut by pixels.
    Index first = 0, last = 0;
    Index scratch = 0;  // first float of its packed rows
  };
  struct Scratch {
    float* pack = nullptr;
    float* pool = nullptr;
    float* sums = nullptr;   // of each pixel, between parts
    Index* at = nullptr;     // of each pixel: where its input begins
    Index* to = nullptr;     // of each result: where it goes
    Index* place = nullptr;  // of each pixel: row·Q + column, only where taps may be skipped
    Run* runs = nullptr;     // of the one pixel at hand, likewise
  };
  // Consecutive runs whose weights leave room in the second-level cache.
  struct Part {
    Index first = 0, count = 0;  // runs
    Index begin = 0, depth = 0;  // of the weights: of its first channel, and how many
  };
  // What a task fetches into the second-level cache while it computes its last filters: the input
  // of the next.
  struct Ahead {
    const float* from = nullptr;
    Index floats = 0;
  };
  enum class Pooling { none, registers, scratch };
  // Rows [begin, end) of the convolution's output.
  struct Rows {
    Index begin = 0, end = 0;
    Index pixel = 0;  // where they begin in scratch.pool
  };
  // A row of them as tiles of neighbours, and the pixels that they leave over.
  struct RowTiles {
    Index begin = 0, tiles = 0, pixels = 0;  // tiles of so many pixels, from pixel `begin`
    Index end = 0;                           // of what they cover, or one more that ends here
  };

  Index packed_rows(const math::PoolSpan& rows) const;
  Index images_of(Index out_rows) const;
  Index packed_floats(Index out_rows, Index images) const;
  Index pixels_of(Index out_rows, Index images) const;
  Index most_pixels() const;
  Index most_packed() const;
  void pack(const RunArgs& args, const Piece& piece, float* to) const;
  Index list_pixels(const RunArgs& args, const Piece& piece, Index listed, const Scratch& s) const;
  TileArgs tile_of(const RunArgs& args, const Block& block, const float* bias,
                   const Scratch& scratch) const;
  void run_block(TileArgs tile, const Block& block, Index count, const Scratch& scratch,
                 const Ahead& ahead) const;
  void run_part(TileArgs& tile, const Block& block, Index count, const Scratch& scratch,
                const Ahead& ahead) const;
  Index most_of_part(Index l2_bytes) const;
  void cut_parts(Index l2_bytes);
  void plan_rows();
  bool reads_x(const RunArgs& args) const;
  RowTiles row_tiles(const Block& block, bool from_x) const;
  Rows rows_inside(const math::PoolSpan& rows) const;
  void pack_edges(const RunArgs& args, const Piece& piece, float* to) const;
  Index run_rows(const RunArgs& args, TileArgs tile, const Block& block, const Piece& piece,
                 const Rows& rows, Index listed, const Scratch& scratch, Ahead& ahead) const;
  bool in_line(const RunArgs& args) const;
  Index run_line(const RunArgs& args, TileArgs tile, const Block& block, const Piece& piece,
                 Index listed, const Scratch& scratch, Ahead& ahead) const;
  Ahead input_of(const RunArgs& args, Index row, Index rows) const;
  void run_pooled(const RunArgs& args, const TileArgs& tile, const Block& block, const Piece& piece,
                  Index first_pixel, const Scratch& scratch, const Ahead& ahead) const;
  Index runs_inside(Index place, Run* runs) const;
  void run_block_skipping(TileArgs tile, const Block& block, Index count,
                          const Scratch& scratch) const;
  Index run_floats() const;
  Index pool_floats(Index out_rows) const;
  Index slot_floats() const;
  Scratch scratch_of(float* slot) const;

  Stage stage_;        // of the pixels that it sees
  Extent skipped_{1};  // x has one of these at each so many rows and columns
  Shapes shapes_;
  const TileLoops& loops_;
  Clamp clamp_;
  Pooling pooling_ = Pooling::none;
  math::PoolAxis pool_rows_, pool_columns_;
  bool packed_ = false;  // else tiles read x itself
  PaddedRows rows_;
  Index c_group_ = 0;
  Index depth_ = 0;  // multiply-adds of an output
  int threads_ = 1;
  // Output rows of a task at most, anywhere, or so many images.
  Index max_rows_ = 1, max_images_ = 0;
  Index pool_step_ = 1;  // of these, what goes through scratch.pool at a time
  Index max_width_ = 0;
  std::vector<Run> runs_;  // of a pixel of which no tap is left out
  std::vector<Part> parts_;
  // Weights that the second-level cache does not hold: each part fetches those after it, evenly, as
  // portions of them would fill the line buffers.
  bool fetch_weights_ = false;
  std::vector<Index> offsets_;  // instead of the runs, if those are short
  bool by_rows_ = false;        // see bands_rows.cpp
  // Pixels of a row whose taps all lie in x itself, and how far from each they lie there.
  Index inner_begin_ = 0, inner_end_ = 0;
  std::vector<Index> x_offsets_;
  std::vector<Run> x_runs_;
  std::vector<Run> tap_runs_;  // one for each tap r, s
  std::vector<Block> blocks_;
  Buffer<float> weights_;
  Index bias_floats_ = 0;
  bool skip_ = false;  // weights are not all finite: see run_block_skipping
};

/// Every reason why register tiles can't run this stage.
std::vector<std::string> refusals_of_bands(const Stage& stage, const Machine& machine);
/// Predicted cost with `vectors` vectors of filters in a tile.
Cost cost_of_bands(const Stage& stage, int vectors, const Machine& machine);
/// Whether tiles of so many vectors pool 2x2 windows before their sums leave registers. Eight sums
/// just hide a multiply-add's latency, if nothing else comes between: where they would be all, long
/// sums are made in larger tiles and pooled from scratch.
bool pools_in_registers(const Stage& stage, int vectors);
/// Blocks of filters of at most `vectors` vectors that cover a stage's K, group by group.
std::vector<Bands::Block> filter_blocks(const Stage& stage, int vectors, const TileLoops& loops);

}  // namespace convoy::cpu
