// The kernel `tap_pairs`: filters larger than their stride, two taps at a time by Winograd's
// F(2×2, 2×2).
//
// Two outputs of two taps that lie a stride apart take three products instead of four:
//   y0 = x0·g0 + x1·g1 = (x0 - x1)·g0 + x1·(g0 + g1)
//   y1 = x1·g0 + x2·g1 = x1·(g0 + g1) - (x1 - x2)·g1
// A filter is a sum of such pairs and single taps, stride by stride, and all of them add to the
// same three sums: m0, m1 and m2 with y0 = m0 + m1 and y1 = m1 + m2; a single tap adds to m0 and
// m2. In two dimensions a tile of 2×2 outputs has nine sums. A 7×7 filter with stride 2 takes 121
// products instead of 196. The differences are the input's own, and those along columns, along rows
// and along both are made once for all filters: no product has a transformed input of its own, so
// that each of the nine sums is an implicit GEMM, which the register tiles of `direct` run.
#include "cpu/tap_pairs/tap_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/filter_blocks.hpp"
#include "cpu/shared/pool_rows.hpp"
#include "cpu/shared/post_ops.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {
using math::ceil_div;
using math::round_up;
using namespace tap_pairs_loops;

// The factor of a product: w is [R,S,C], from one filter's channel on.
double transformed(const Stage& stage, const float* w, const Factor& row, const Factor& column) {
  const auto in_row = [&](Index r) {
    const float* const at = w + r * stage.s * stage.c;
    double sum = static_cast<double>(at[column.first * stage.c]);
    if (column.second >= 0) sum += static_cast<double>(at[column.second * stage.c]);
    return column.sign * sum;
  };
  return row.sign * (row.second < 0 ? in_row(row.first) : in_row(row.first) + in_row(row.second));
}

struct TapPairsWeights final : PackedWeights {
  Buffer<float> u;      // of each block [sum][product][width]
  Buffer<float> plain;  // [K,R,S,C], zeros behind the last filter
};

class TapPairsPrepared final : public CpuPrepared<TapPairsWeights> {
 public:
  TapPairsPrepared(const Stage& stage, const Machine& machine, int vectors)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        tiles_(tile_loops()),
        loops_(tap_pairs_loops::loops()),
        epilogue_(stage.act),
        post_(stage),
        pool_rows_(math::pool_rows(stage, shapes_.p)),
        pool_columns_(math::pool_columns(stage, shapes_.q)),
        rows_factors_(factors_of(stage.r, stage.stride.h)),
        columns_factors_(factors_of(stage.s, stage.stride.w)),
        threads_(std::max(1, machine.threads)),
        rows_(rows_of(stage, shapes_)),
        tiles_w_(ceil_div(shapes_.q, 2)) {
    depth_ = products_of(rows_factors_, 1, 1) * products_of(columns_factors_, 1, 1) * stage.c;
    for (const FilterBlock& b : filter_blocks(stage, vectors, tiles_)) {
      blocks_.push_back({b.first, b.count, b.vectors, b.width, b.first * depth_, {}});
      most_width_ = std::max(most_width_, b.width);
      padded_k_ = b.first + b.width;
    }
    step_ = step_of(rows_, shapes_, machine, most_width_);
    for (const bool whole : {false, true}) {
      List& list = lists_[static_cast<std::size_t>(whole)];
      list.a_row = whole ? shapes_.q / 2 : tiles_w_;
      for (Index row = 0; row < step_; ++row)
        for (Index i = 0; i < list.a_row; ++i) {
          list.at.push_back(2 * (row * stage.stride.h * rows_.row_pitch +
                                 i * stage.stride.w * rows_.pixel_pitch));
          for (Block& block : blocks_)
            block.to[static_cast<std::size_t>(whole)].push_back((row * tiles_w_ + i) * block.width);
        }
    }
    for (int sum = 0; sum < sums; ++sum)
      for (const Factor& row : rows_factors_[static_cast<std::size_t>(sum / 3)])
        for (const Factor& column : columns_factors_[static_cast<std::size_t>(sum % 3)])
          for (Index c = 0; c < stage.c; ++c)
            offsets_[static_cast<std::size_t>(sum)].push_back(
                (2 * row.difference + column.difference) * plane() + row.offset * rows_.row_pitch +
                column.offset * rows_.pixel_pitch + c);
    if (!stage.pool) return;
    // Rows of which some are pooled already, and those of a step.
    const Index window = (pool_rows_.window - 1) * pool_rows_.dil + 1;
    held_rows_ = std::min(window, shapes_.p) + 2 * step_ + 2;
  }

  std::string packing() const override {
    return fmt::format("{}stride{}x{} in blocks of {}", weights_shape(stage_), stage_.stride.h,
                       stage_.stride.w, most_width_);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(round_up(padded_k_, 16) + threads_ * slot_floats()) *
           sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    float* const bias = reinterpret_cast<float*>(args.workspace);
    copy_bias(args, stage_, padded_k_, bias);
    // Rows of the output, or without a pool rows of tiles. Windows that overlap make a band compute
    // rows of the one before it.
    const Index image_rows = stage_.pool ? shapes_.out_h : ceil_div(shapes_.p, 2);
    const Index rows = args.n * image_rows;
    const bool shares = pool_rows_.window > pool_rows_.stride;
    Index tasks = std::clamp<Index>(rows / (shares ? 24 : 4), threads_, 8 * threads_);
    tasks = std::min(rows, round_up(tasks, threads_));
    args.threads->for_each(tasks, [&](Index task, int slot) {
      const Index end = rows * (task + 1) / tasks;
      for (Index row = rows * task / tasks; row < end;) {
        const Index first = row % image_rows, count = std::min(end - row, image_rows - first);
        run_band(args, bias, row / image_rows, first, count,
                 bias + round_up(padded_k_, 16) + slot * slot_floats());
        row += count;
      }
    });
    return Status();
  }

 protected:
  void lay_out(const float* w, TapPairsWeights& packed) const override {
    const Index taps = stage_.r * stage_.s * stage_.c;
    packed.u = Buffer<float>(static_cast<std::size_t>(padded_k_ * depth_));
    packed.plain = Buffer<float>(static_cast<std::size_t>(padded_k_ * taps));
    std::fill_n(packed.plain.data(), packed.plain.size(), 0.0F);
    std::copy_n(w, stage_.k * taps, packed.plain.data());
    for (const Block& block : blocks_) {
      float* to = packed.u.data() + block.weights;
      for (int sum = 0; sum < sums; ++sum)
        for (const Factor& row : rows_factors_[static_cast<std::size_t>(sum / 3)])
          for (const Factor& column : columns_factors_[static_cast<std::size_t>(sum % 3)])
            for (Index c = 0; c < stage_.c; ++c, to += block.width)
              for (Index i = 0; i < block.width; ++i)
                to[i] = static_cast<float>(transformed(
                    stage_, packed.plain.data() + (block.first + i) * taps + c, row, column));
    }
  }

 private:
  struct Block {
    Index first = 0, count = 0;
    int vectors = 0;
    Index width = 0;
    Index weights = 0;                     // [sum][product][width] begins here
    std::array<std::vector<Index>, 2> to;  // of each tile of a list: its sums
  };
  // Tiles of a step: all of them, or those of two columns inside the output.
  struct List {
    Index a_row = 0;
    std::vector<Index> at;  // where the input of each begins
  };

  Index plane() const { return plane_floats(rows_, step_); }
  Index m_pitch() const { return step_ * tiles_w_ * most_width_ + 16; }
  Index slot_floats() const {
    return 4 * plane() + round_up(sums * m_pitch(), 16) +
           round_up(held_rows_ * shapes_.q * padded_k_ + 16, 16);
  }

  void run_band(const RunArgs& args, const float* bias, Index image, Index first, Index count,
                float* scratch) const;
  void run_pooled_band(const RunArgs& args, const float* bias, Index image, Index first,
                       Index count, float* scratch, float* y) const;
  void pack_step(const RunArgs& args, Index image, Index row, Index tile_rows, float* packed) const;
  void run_step(const float* packed, const float* bias, Index row, Index tile_rows,
                const Strides& stride, bool padded, float* m, float* y) const;
  void multiply(const Block& block, const float* x, Index rows, bool odd, float* m) const;

  Stage stage_;
  Shapes shapes_;
  const TileLoops& tiles_;
  const tap_pairs_loops::Loops& loops_;
  Epilogue epilogue_;
  PostOps post_;
  math::PoolAxis pool_rows_, pool_columns_;
  Factors rows_factors_, columns_factors_;
  int threads_;
  PaddedRows rows_;
  Index tiles_w_ = 0;
  Index depth_ = 0;  // products of all sums
  std::vector<Block> blocks_;
  Index most_width_ = 0, padded_k_ = 0;
  Index step_ = 1;  // rows of tiles at a time
  std::array<List, 2> lists_;
  std::array<std::vector<Index>, sums> offsets_;
  Index held_rows_ = 0;
};

// The nine sums of so many rows of tiles, of which the last may have one row of results only. Those
// of m2 alone, in either dimension, are not made where no second result lies inside the output.
void TapPairsPrepared::multiply(const Block& block, const float* x, Index rows, bool odd,
                                float* m) const {
  alignas(64) static constexpr float no_bias[16 * max_tile_vectors] = {};
  TileArgs tile;
  tile.x = x;
  tile.w = weights().u.data() + block.weights;
  tile.bias = no_bias;
  tile.epilogue = Epilogue();
  tile.valid = block.width;
  const auto vectors = static_cast<std::size_t>(block.vectors);
  for (int sum = 0; sum < sums; ++sum) {
    const std::size_t whole = sum % 3 == 2;
    const List& list = lists_[whole];
    const Index tiles = (odd && sum / 3 == 2 ? rows - 1 : rows) * list.a_row;
    const Index count = ceil_div(tiles, tiles_.max_pixels[vectors]);
    const std::vector<Index>& offsets = offsets_[static_cast<std::size_t>(sum)];
    tile.offsets = offsets.data();
    tile.depth = static_cast<Index>(offsets.size());
    tile.y = m + sum * m_pitch();
    for (Index i = 0; i < count; ++i) {
      const Index begin = tiles * i / count, end = tiles * (i + 1) / count;
      tile.at = list.at.data() + begin;
      tile.to = tile.next_to = block.to[whole].data() + begin;
      tiles_.plain[vectors][static_cast<std::size_t>(end - begin)](tile);
    }
    tile.w += tile.depth * block.width;
  }
}

// Packs the input behind so many rows of tiles, from output row `row` on, with its differences.
void TapPairsPrepared::pack_step(const RunArgs& args, Index image, Index row, Index tile_rows,
                                 float* packed) const {
  const Index rows = packed_rows(stage_, tile_rows);
  rows_.pack(args, image, row * stage_.stride.h - stage_.pad.top, rows, packed);
  DifferenceArgs differences;
  differences.x = packed;
  differences.rows = rows;
  differences.pitch = rows_.row_pitch;
  differences.floats = rows_.columns * rows_.pixel_pitch;
  differences.column_step = stage_.stride.w * rows_.pixel_pitch;
  differences.row_step = stage_.stride.h;
  differences.to = packed + plane();
  differences.plane = plane();
  loops_.differences(differences);
}

// The results of these rows of tiles, all filters. y: the first result of output row `row`, of
// filters so padded that whole blocks fit if `padded`.
void TapPairsPrepared::run_step(const float* packed, const float* bias, Index row, Index tile_rows,
                                const Strides& stride, bool padded, float* m, float* y) const {
  OutputArgs out;
  out.m_pitch = m_pitch();
  out.tiles = tiles_w_;
  out.last_columns = shapes_.q - 2 * (tiles_w_ - 1);
  out.epilogue = epilogue_;
  out.row = stride.h;
  out.column = stride.w;
  out.stage = &stage_;
  out.pixel_pitch = rows_.pixel_pitch;
  out.row_pitch = rows_.row_pitch;
  const bool odd = row + 2 * tile_rows > shapes_.p;
  for (const Block& block : blocks_) {
    multiply(block, packed, tile_rows, odd, m);
    out.width = block.width;
    out.valid = padded ? block.width : block.count;
    out.bias = bias + block.first;
    out.w = weights().plain.data() + block.first * stage_.r * stage_.s * stage_.c;
    for (Index i = 0; i < tile_rows; ++i) {
      out.p = row + 2 * i;
      out.rows = std::min<Index>(2, shapes_.p - out.p);
      out.m = m + i * tiles_w_ * block.width;
      out.x = packed + 2 * i * stage_.stride.h * rows_.row_pitch;
      out.y = y + 2 * i * stride.h + block.first;
      loops_.output(out);
    }
  }
  finish_unpooled_rows(post_, {y, std::min(2 * tile_rows, shapes_.p - row), stride.h, shapes_.q,
                               stride.w, padded ? padded_k_ : stage_.k});
}

void TapPairsPrepared::run_band(const RunArgs& args, const float* bias, Index image, Index first,
                                Index count, float* scratch) const {
  float* const y = static_cast<float*>(args.y) + image * args.y_stride.n;
  if (stage_.pool) return run_pooled_band(args, bias, image, first, count, scratch, y);
  float* const m = scratch + 4 * plane();
  const Index last_row = std::min(2 * (first + count), shapes_.p);
  for (Index row = 2 * first; row < last_row; row += 2 * step_) {
    const Index tile_rows = std::min(step_, ceil_div(last_row - row, 2));
    pack_step(args, image, row, tile_rows, scratch);
    run_step(scratch, bias, row, tile_rows, args.y_stride, false, m, y + row * args.y_stride.h);
  }
}

// Output rows [first, first + count) of the pool. Rows that windows need lie in scratch until all
// of a window are there.
void TapPairsPrepared::run_pooled_band(const RunArgs& args, const float* bias, Index image,
                                       Index first, Index count, float* scratch, float* y) const {
  float* const m = scratch + 4 * plane();
  float* const held = m + round_up(sums * m_pitch(), 16);
  const Index row_floats = shapes_.q * padded_k_, last_row = pool_rows_.end(first + count - 1);
  const Strides stride{0, 0, row_floats, padded_k_, 1};
  RowsToPool rows{pool_rows_, pool_columns_, shapes_.q, padded_k_, stage_.k, held, 0, post_};
  Index pooled = first;  // the next row of the output
  Index row = pool_rows_.lowest(first) / 2 * 2;
  rows.first = row;
  while (row < last_row) {
    const Index tile_rows = std::min(step_, ceil_div(last_row - row, 2));
    const Index end = std::min(row + 2 * tile_rows, shapes_.p);
    pack_step(args, image, row, tile_rows, scratch);
    run_step(scratch, bias, row, tile_rows, stride, true, m,
             held + (row - rows.first) * row_floats);
    row = end;
    Index ready = pooled;
    while (ready < first + count && pool_rows_.end(ready) <= end) ++ready;
    pool_rows(rows, pooled, ready, shapes_.out_w, y, args.y_stride);
    pooled = ready;
    if (pooled == first + count) break;
    // Rows that windows still need go to the front.
    const Index needed = pool_rows_.lowest(pooled);
    if (needed < end) {
      std::memmove(held, held + (needed - rows.first) * row_floats,
                   static_cast<std::size_t>((end - needed) * row_floats) * sizeof(float));
      rows.first = needed;
    } else {
      row = rows.first = needed / 2 * 2;
    }
  }
  // Windows that padding and dilation leave with no row inside the plane.
  pool_rows(rows, pooled, first + count, shapes_.out_w, y, args.y_stride);
}

constexpr Serves served_by_tap_pairs{
    .types = Types({DType::f32, DType::u8}, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = false,
    .groups = false,
    .bias = true,
    .norm = true,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = any_pool,
    .pools_first = false,
    .keep = nothing,
};

class TapPairs final : public StageKernel {
 public:
  TapPairs()
      : StageKernel({.name = "tap_pairs",
                     .arithmetic = "winograd f2 of two taps",
                     .device = DeviceKind::cpu,
                     .serves = served_by_tap_pairs,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    const bool pairs = stage.r > stage.stride.h && stage.s > stage.stride.w;
    const Index depth = stage.r * stage.s * stage.c;
    Refusals refusals(stage, why);
    if (!pairs)
      refusals.refuse("the filter", fmt::format("{}x{}", stage.r, stage.s),
                      fmt::format("more than the stride, {}x{}, whose pairs of taps it takes",
                                  stage.stride.h, stage.stride.w));
    // Measured on tens of thousands of drawn stages: of few products, or on an image of mostly
    // padding, its error may exceed twice that of plain fp32.
    refusals.expect(depth >= 64, "R*S*C", depth, "at least 64: with fewer its error is too large")
        .image_of_at_least(4, "with less its error is too large")
        .packing(math::rows_of_window(stage));
  }

  // a: vectors of filters.
  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    const TileSizes sizes = tile_sizes(machine);
    std::vector<Tile> tiles;
    for (const int vectors : sizes.widths(stage.k, {4, 3, 2, 1}))
      tiles.push_back(
          {fmt::format("{}x2x2x{}", sizes.pixels(vectors), vectors * sizes.lanes), vectors});
    return tiles;
  }

  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    return cost_of(stage, tile.a, machine);
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<TapPairsPrepared>(stage, machine, tile.a);
  }
};

}  // namespace

const Kernel& tap_pairs() {
  static const TapPairs kernel;
  return kernel;
}

}  // namespace convoy::cpu
