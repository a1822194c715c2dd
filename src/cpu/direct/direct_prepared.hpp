// How the kernel `direct` walks over a stage: bands of output rows, each packed once into a
// thread's own scratch, then register tiles over its pixels for each block of filters.
#pragma once

#include <vector>

#include "core/buffer.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/filter_blocks.hpp"
#include "cpu/shared/padded_rows.hpp"
#include "cpu/shared/post_ops.hpp"
#include "cpu/shared/register_tile.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {

/// Rows of the output at least so wide run as tiles of neighbours: each has at least one.
inline constexpr Index min_row_pixels = 2 * max_tile_pixels;

struct DirectWeights final : PackedWeights {
  Buffer<float> packed;  // of each block [depth][width]
  bool finite = true;
};

/// A stage bound to register tiles of at most so many vectors of filters.
class DirectPrepared final : public CpuPrepared<DirectWeights> {
 public:
  /// `vectors`: of filters in a tile, at most. The stage must pass `direct`'s refusals.
  DirectPrepared(const Stage& stage, const Machine& machine, int vectors);
  std::string packing() const override;
  std::size_t workspace_bytes() const override;
  Status run(const RunArgs& given) const noexcept override;

  /// Tasks: bands of rows or of pixels as equal as can be, of at most so many output rows, or of so
  /// many rows that are whole images; and parts that the filters are split into.
  struct Cut {
    Index rows = 1, splits = 1, bands = 1;
    bool by_pixels = false, by_images = false;
  };
  /// Of a run of n images: kept for the stage's n, found again for fewer.
  Cut cut(Index n) const { return n == stage_.n ? cut_ : find_cut(n); }

 protected:
  void lay_out(const float* w, DirectWeights& to) const override;

 private:
  // Consecutive output rows of one image that a task computes.
  struct Piece {
    Index image = 0;
    math::PoolSpan rows;
    // Its pixels, from the first of these rows on: all, but where tasks are cut by pixels.
    Index first = 0, last = 0;
    Index scratch = 0;  // first float of its packed rows
  };
  // Rows [begin, end) of the output, counted over all images, their pixels [first, last) and blocks
  // of filters.
  struct Task {
    Index begin = 0, end = 0, first = 0, last = 0;
    bool by_pixels = false;
    Index first_block = 0, last_block = 0;
  };
  struct Scratch {
    float* pack = nullptr;
    float* pool = nullptr;
    float* sums = nullptr;   // of each pixel, between parts
    Index* at = nullptr;     // of each pixel: where its input begins
    Index* to = nullptr;     // of each result: where it goes
    Index* place = nullptr;  // of each pixel: row·Q + column, only where taps may be skipped
    Run* runs = nullptr;     // of one pixel, likewise
  };
  // Consecutive runs whose weights leave room in L2 for the input.
  struct Part {
    Index first = 0, count = 0;  // runs
    Index begin = 0, depth = 0;  // of the weights: of its first channel, and how many
  };
  // What a task prefetches into L2 during its last block of filters: the input of the next task.
  struct Ahead {
    const float* from;  // not null where nothing is to be fetched, either: all step it
    Index floats = 0;
    Ahead nothing() const { return {from, 0}; }
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

  Cut find_cut(Index n) const;
  Task task_of(const Cut& cut, Index n, Index index) const;
  template <class Body>
  void each_piece(const Task& task, const Body& body) const;
  Index load_task(const RunArgs& args, const Task& task, const Scratch& scratch) const;
  void run_block_of(const RunArgs& args, const Task& task, const FilterBlock& block,
                    const float* bias, Index listed, const Scratch& scratch, Ahead ahead) const;
  void finish_task(const RunArgs& args, const Task& task) const;
  void copy_biases(const RunArgs& args, float* to) const;
  Index packed_rows(const math::PoolSpan& rows) const;
  Index images_of(Index out_rows) const;
  Index packed_floats(Index out_rows, Index images) const;
  Index pixels_of(Index out_rows, Index images) const;
  Index most_pixels() const;
  Index most_packed() const;
  void pack_rows(const RunArgs& args, const Piece& piece, float* to) const;
  Index list_pixels(const RunArgs& args, const Piece& piece, Index listed, const Scratch& s) const;
  TileArgs tile_of(const RunArgs& args, const FilterBlock& block, const float* bias,
                   const Scratch& scratch) const;
  void run_block(TileArgs tile, const FilterBlock& block, Index count, const Scratch& scratch,
                 const Ahead& ahead) const;
  void run_part(TileArgs& tile, const FilterBlock& block, Index count, const Scratch& scratch,
                const Ahead& ahead) const;
  Index most_of_part(Index l2_bytes) const;
  void cut_parts(Index l2_bytes);
  void plan_packing();
  void plan_runs(Index l2_bytes);
  void plan_rows();
  void plan_bands(const Machine& machine);
  bool reads_x(const RunArgs& args) const;
  RowTiles row_tiles(const FilterBlock& block, bool from_x) const;
  Rows rows_inside(const math::PoolSpan& rows) const;
  void pack_edges(const RunArgs& args, const Piece& piece, float* to) const;
  Index run_rows(const RunArgs& args, TileArgs tile, const FilterBlock& block, const Piece& piece,
                 const Rows& rows, Index listed, const Scratch& scratch, Ahead& ahead) const;
  bool contiguous(const RunArgs& args) const;
  Index run_contiguous(const RunArgs& args, TileArgs tile, const FilterBlock& block,
                       const Piece& piece, Index listed, const Scratch& scratch,
                       Ahead& ahead) const;
  Ahead input_of(const RunArgs& args, Index row, Index rows) const;
  void run_pooled(const RunArgs& args, const TileArgs& tile, const FilterBlock& block,
                  const Piece& piece, Index first_pixel, const Scratch& scratch,
                  const Ahead& ahead) const;
  Index runs_inside(Index place, Run* runs) const;
  void run_block_skipping(TileArgs tile, const FilterBlock& block, Index count,
                          const Scratch& scratch) const;
  // See run_block_skipping.
  bool skips() const { return packed_ && !weights().finite; }
  Index run_floats() const;
  Index pool_floats(Index out_rows) const;
  Index slot_floats() const;
  Scratch scratch_of(float* slot) const;

  Stage stage_;        // of the pixels that it sees
  Extent skipped_{1};  // x has one of these at each so many rows and columns
  Shapes shapes_;
  const TileLoops& loops_;
  Epilogue epilogue_;
  PostOps post_;
  Pooling pooling_ = Pooling::none;
  math::PoolAxis pool_rows_, pool_columns_;
  bool packed_ = false;  // else tiles read x itself
  PaddedRows rows_;
  Index c_group_ = 0;
  Index depth_ = 0;  // multiply-adds of an output
  int threads_ = 1;
  // Output rows of a task at most, anywhere, or so many images.
  Index max_rows_ = 1, max_images_ = 0;
  Cut cut_;              // of all images
  Index pool_step_ = 1;  // of these, what goes through scratch.pool at a time
  Index max_width_ = 0;
  std::vector<Run> runs_;  // of a pixel of which no tap is left out
  std::vector<Part> parts_;
  // Weights exceed L2: each part prefetches the next one's, evenly, since bursts would fill the
  // line fill buffers.
  bool fetch_weights_ = false;
  std::vector<Index> offsets_;  // instead of the runs, if those are short
  bool by_rows_ = false;        // see direct_rows.cpp
  // Pixels of a row whose taps all lie in x itself, and how far from each they lie there.
  Index inner_begin_ = 0, inner_end_ = 0;
  std::vector<Index> x_offsets_;
  std::vector<Run> x_runs_;
  std::vector<Run> tap_runs_;  // one for each tap r, s
  std::vector<FilterBlock> blocks_;
  std::size_t weight_floats_ = 0;
  Index bias_floats_ = 0;
};

/// Predicted cost with `vectors` vectors of filters in a tile.
Cost direct_cost(const Stage& stage, int vectors, const Machine& machine);
/// Whether tiles of so many vectors pool 2x2 windows before their sums leave registers. Eight sums
/// just hide a multiply-add's latency, if nothing else comes between: where they would be all, long
/// sums are made in larger tiles and pooled from scratch.
bool pools_in_registers(const Stage& stage, int vectors, const TileSizes& sizes);

}  // namespace convoy::cpu
