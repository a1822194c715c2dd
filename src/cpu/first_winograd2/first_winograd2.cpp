// The kernel `first_winograd2`: first layers, 3×3 stride 1 with up to four channels, by Winograd
// F(2×2, 3×3) whose sixteen products never leave registers.
//
// With so few channels the usual way, sixteen matrix products with a transform before and after,
// would spend its time on the transforms. Here the input is transformed a row of tiles at a time
// and each tile's output transform is folded into the order in which its products are summed. An
// output tile is a pooling window.
#include "cpu/first_winograd2/first_winograd2.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/padded_rows.hpp"
#include "cpu/shared/pool_apart.hpp"
#include "cpu/shared/post_ops.hpp"
#include "cpu/shared/refusals.hpp"
#include "cpu/shared/row_bands.hpp"
#include "math/nan.hpp"

namespace convoy::cpu {
namespace {
using math::ceil_div;

struct FirstWinograd2Weights final : PackedWeights {
  Buffer<float> u;      // of each block [16][C][width]
  Buffer<float> plain;  // [K,3,3,C]
  // Transformed inputs up to this magnitude give finite results.
  float limit = -1;
};

class FirstWinograd2Prepared final : public CpuPrepared<FirstWinograd2Weights> {
 public:
  FirstWinograd2Prepared(const Stage& stage, const Machine& machine)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        loops_(first_winograd2_loops::loops()),
        epilogue_(stage.act),
        post_(stage),
        pool_(stage.pool.has_value()),
        threads_(std::max(1, machine.threads)) {
    tile_rows_ = pool_ ? shapes_.out_h : ceil_div(shapes_.p, 2);
    tile_columns_ = pool_ ? shapes_.out_w : ceil_div(shapes_.q, 2);
    rows_.stage = stage;
    rows_.pixel_pitch = stage.c;
    // The transform reads whole vectors: what lies behind the last tile must be there, as zeros.
    rows_.columns = 2 * tile_columns_ + 2 + ceil_div(loops_.lanes, stage.c);
    rows_.row_pitch = (rows_.columns * stage.c + 15) / 16 * 16;
    pieces_ = ceil_div(tile_columns_, first_winograd2_loops::piece_tiles(stage.c));
    for (Index k = 0; k < stage.k;) {
      const Index vectors =
          std::min<Index>(loops_.max_vectors, ceil_div(stage.k - k, loops_.lanes));
      blocks_.push_back({k, std::min(vectors * loops_.lanes, stage.k - k), vectors});
      k += vectors * loops_.lanes;
    }
    padded_k_ = ceil_div(stage.k, loops_.lanes) * loops_.lanes;
  }

  std::string packing() const override { return weights_shape(stage_); }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(padded_k_ + threads_ * slot_floats()) * sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    float* bias = reinterpret_cast<float*>(args.workspace);
    copy_bias(args, stage_, padded_k_, bias);
    for_each_band(args, tile_rows_, band_rows, threads_,
                  [&](Index image, Index first, Index count, int slot) {
                    float* scratch = bias + padded_k_ + slot * slot_floats();
                    run_band(args, bias, image, first, count, scratch);
                  });
    return Status();
  }

 protected:
  void lay_out(const float* w, FirstWinograd2Weights& to) const override {
    to.u = Buffer<float>(static_cast<std::size_t>(16 * stage_.c * padded_k_));
    to.plain = Buffer<float>(static_cast<std::size_t>(shapes_.w_elements));
    std::copy_n(w, shapes_.w_elements, to.plain.data());
    float most = 0;
    bool finite = true;
    std::fill_n(to.u.data(), to.u.size(), 0.0F);
    for (const Block& block : blocks_)
      for (Index i = 0; i < block.count; ++i)
        for (Index c = 0; c < stage_.c; ++c) {
          float g[3][3], t[4][3];
          for (Index r = 0; r < 3; ++r)
            for (Index s = 0; s < 3; ++s) {
              g[r][s] = w[((block.first + i) * 9 + r * 3 + s) * stage_.c + c];
              finite = finite && std::isfinite(g[r][s]);
            }
          for (int s = 0; s < 3; ++s) {
            t[0][s] = g[0][s];
            t[1][s] = (g[0][s] + g[2][s] + g[1][s]) * 0.5F;
            t[2][s] = (g[0][s] + g[2][s] - g[1][s]) * 0.5F;
            t[3][s] = g[2][s];
          }
          for (int r = 0; r < 4; ++r) {
            const float row[4] = {t[r][0], (t[r][0] + t[r][2] + t[r][1]) * 0.5F,
                                  (t[r][0] + t[r][2] - t[r][1]) * 0.5F, t[r][3 - 1]};
            for (int s = 0; s < 4; ++s) {
              most = std::max(most, std::abs(row[s]));
              finite = finite && std::isfinite(row[s]);
              to.u[static_cast<std::size_t>(
                  block.first * 16 * stage_.c +
                  ((r * 4 + s) * stage_.c + c) * block.vectors * loops_.lanes + i)] = row[s];
            }
          }
        }
    // Below this no sum of 16·C products of sums of four inputs can overflow.
    to.limit =
        finite ? 1e38F / (64.0F * static_cast<float>(stage_.c) * std::max(most, 1e-30F)) : -1.0F;
  }

 private:
  struct Block {
    Index first = 0, count = 0, vectors = 0;
  };
  static constexpr Index band_rows = 8;

  Index slot_floats() const {
    return (2 * band_rows + 2) * rows_.row_pitch + 16 * first_winograd2_loops::piece_floats + 16;
  }

  void run_band(const RunArgs& args, const float* bias, Index image, Index first, Index count,
                float* scratch) const {
    float* v = scratch;
    float* packed = scratch + 16 * first_winograd2_loops::piece_floats;
    rows_.pack(args, image, 2 * first - stage_.pad.top, 2 * count + 2, packed);
    const Index c = stage_.c;
    for (Index i = 0; i < count; ++i) {
      const float* x = packed + 2 * i * rows_.row_pitch;
      for (Index piece = 0; piece < pieces_; ++piece) {
        const Index begin = tile_columns_ * piece / pieces_;
        const Index end = tile_columns_ * (piece + 1) / pieces_;
        const float most = loops_.transform(x + 2 * c * begin, rows_.row_pitch, c, end - begin, v);
        // NaN fails the test too.
        if (most <= weights().limit)
          multiply(args, bias, image, first + i, begin, end, v);
        else
          recompute(args, bias, image, first + i, begin, end, x);
        finish_piece(args, image, first + i, begin, end);
      }
    }
  }

  // What follows bias and clamp of the tiles [begin, end) of a row.
  void finish_piece(const RunArgs& args, Index image, Index tile_row, Index begin,
                    Index end) const {
    const Strides& s = args.y_stride;
    const Index size = pool_ ? 1 : 2, row = size * tile_row, column = size * begin;
    finish_rows(post_, {static_cast<float*>(args.y) + image * s.n + row * s.h + column * s.w,
                        std::min(size, shapes_.out_h - row), s.h,
                        std::min(size * end, shapes_.out_w) - column, s.w, stage_.k});
  }

  void multiply(const RunArgs& args, const float* bias, Index image, Index row, Index begin,
                Index end, const float* v) const {
    first_winograd2_loops::PieceArgs piece;
    piece.v = v;
    piece.tiles = end - begin;
    piece.epilogue = epilogue_;
    piece.pool = pool_;
    piece.row = args.y_stride.h;
    piece.column = args.y_stride.w;
    const Index step = pool_ ? 1 : 2;
    float* y = static_cast<float*>(args.y) + image * args.y_stride.n +
               step * row * args.y_stride.h + step * begin * args.y_stride.w;
    if (!pool_) {
      piece.rows = std::min<Index>(2, shapes_.p - 2 * row);
      piece.last_columns = std::min<Index>(2, shapes_.q - 2 * (end - 1));
    }
    for (const Block& block : blocks_) {
      piece.u = weights().u.data() + block.first * 16 * stage_.c;
      piece.bias = bias + block.first;
      piece.valid = block.count;
      piece.y = y + block.first;
      loops_.multiply(piece, stage_.c, static_cast<int>(block.vectors));
    }
  }

  // Where transformed values would overflow or are not finite: tap by tap in the order r, s, c.
  void recompute(const RunArgs& args, const float* bias, Index image, Index tile_row, Index begin,
                 Index end, const float* x) const {
    float* y = static_cast<float*>(args.y) + image * args.y_stride.n;
    const auto pixel = [&](Index p, Index q, Index k) {
      float sum = 0;
      for (Index r = 0; r < 3; ++r)
        for (Index s = 0; s < 3; ++s) {
          const Index h = p + r - stage_.pad.top, w = q + s - stage_.pad.left;
          if (h < 0 || h >= stage_.h || w < 0 || w >= stage_.w) continue;
          const float* from = x + (p - 2 * tile_row + r) * rows_.row_pitch + (q + s) * stage_.c;
          for (Index c = 0; c < stage_.c; ++c)
            sum = loops_.multiply_add(
                from[c],
                weights().plain[static_cast<std::size_t>(((k * 3 + r) * 3 + s) * stage_.c + c)],
                sum);
        }
      return epilogue_.finish(sum, bias[k]);
    };
    for (Index tile = begin; tile < end; ++tile)
      for (Index k = 0; k < stage_.k; ++k) {
        float best = 0;
        for (Index i = 0; i < 4; ++i) {
          const Index p = 2 * tile_row + i / 2, q = 2 * tile + i % 2;
          if (p >= shapes_.p || q >= shapes_.q) continue;
          const float value = pixel(p, q, k);
          if (!pool_)
            y[p * args.y_stride.h + q * args.y_stride.w + k] = value;
          else if (i == 0 || math::beats(value, best))
            best = value;
        }
        if (pool_) y[tile_row * args.y_stride.h + tile * args.y_stride.w + k] = best;
      }
  }

  Stage stage_;
  Shapes shapes_;
  const first_winograd2_loops::Loops& loops_;
  Epilogue epilogue_;
  PostOps post_;
  bool pool_;
  int threads_;
  Index tile_rows_ = 0, tile_columns_ = 0;
  Index pieces_ = 1;
  Index padded_k_ = 0;
  PaddedRows rows_;
  std::vector<Block> blocks_;
};

constexpr Serves served_by_first_winograd2{
    .types = Types({DType::f32, DType::u8}, DType::f32),
    .layouts = Layout::nhwc,
    .strides = false,
    .dilation = false,
    .groups = false,
    .bias = true,
    .norm = true,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = none_or_whole_max2,
    .pools_first = false,
    .keep = nothing,
};

class FirstWinograd2 final : public StageKernel {
 public:
  FirstWinograd2()
      : StageKernel({.name = "first_winograd2",
                     .arithmetic = "winograd f2 in registers",
                     .device = DeviceKind::cpu,
                     .serves = served_by_first_winograd2,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    // Measured on drawn stages: with fewer channels, or an image of mostly padding, its error may
    // exceed twice that of plain fp32.
    Refusals(stage, why)
        .filter(3, 3)
        .expect(stage.c == 3 || stage.c == 4, "C", stage.c, "3 or 4")
        .image_of_at_least(4, "with less its error is too large")
        .packing(2)
        .plane_of_pool();
  }

  std::vector<Tile> tiles(const Stage&, const Machine& machine) const override {
    const int filters =
        first_winograd2_loops::max_vectors_of(machine.vector_registers) * machine.vector_floats;
    return {{fmt::format("2x{}", filters), 0}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    return cost_pooled(stage, machine, [&](const Stage& some) { return cost_of(some, machine); });
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return prepare_pooled(stage, machine, [&](const Stage& some) {
      return std::make_unique<FirstWinograd2Prepared>(some, machine);
    });
  }

 private:
  static Cost cost_of(const Stage& stage, const Machine& machine) {
    const Shapes shapes = shapes_of(stage);
    const CoreCosts::FirstWinograd2& costs = core_costs(machine).first_winograd2;
    const double lanes = machine.vector_floats;
    const double rows = static_cast<double>(stage.pool ? shapes.out_h : ceil_div(shapes.p, 2));
    const double columns = static_cast<double>(stage.pool ? shapes.out_w : ceil_div(shapes.q, 2));
    const double tiles = static_cast<double>(stage.n) * rows * columns;
    const double vectors = static_cast<double>(ceil_div(stage.k, machine.vector_floats));
    const double c = static_cast<double>(stage.c);
    const double step = 2 * lanes / (machine.peak_flops / machine.threads);  // of one multiply-add
    // Each tile and vector: 16·C products, which wait for their loads, and the rest.
    const double product_steps =
        first_winograd2_loops::max_vectors_of(machine.vector_registers) == 1 ? costs.single_steps
                                                                             : costs.product_steps;
    const double outputs = stage.pool ? costs.pooled_output_steps : costs.output_steps;
    const double products = tiles * vectors * (16 * c * product_steps + outputs) * step;
    const double transforms =
        tiles * (c * costs.transform_channel_steps + costs.transform_steps) * step;
    Cost cost;
    cost.flops = 2 * tiles * vectors * lanes * 16 * c;
    cost.waste = 1 - static_cast<double>(shapes.gemm_m * stage.k) / (4 * tiles * vectors * lanes);
    cost.waste = std::max(cost.waste, 0.0);
    cost.bytes = bytes_of_stage(stage, shapes);
    cost.seconds =
        std::max((products + transforms) / machine.threads, cost.bytes / machine.memory_bandwidth) +
        start_seconds(machine);
    return cost;
  }
};

}  // namespace

const Kernel& first_winograd2() {
  static const FirstWinograd2 kernel;
  return kernel;
}

}  // namespace convoy::cpu
