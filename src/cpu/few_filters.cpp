// The kernel `few_filters`: few filters over many channels, as the last layer of a decoder has
// them. One filter's taps become filters of their own: a 1×1 convolution with R·S·K filters fills
// the vectors that K filters would leave mostly empty, and an output is then the sum of R·S
// neighbours' results. Each input is read once, and taps outside the image are never computed.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/buffer.hpp"
#include "cpu/bands.hpp"
#include "cpu/families.hpp"
#include "math/activation.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {

using math::ceil_div;

// Filters are summed four at a time: the compiler makes one vector of it, everywhere.
constexpr Index quad = 4;
constexpr Index max_filters = 8;

// The 1×1 stage of the taps.
Stage taps_apart(const Stage& stage) {
  return {.n = stage.n,
          .h = stage.h,
          .w = stage.w,
          .c = stage.c,
          .k = stage.k * stage.r * stage.s,
          .r = 1,
          .s = 1};
}

class FewFiltersPrepared final : public Prepared {
 public:
  FewFiltersPrepared(const Stage& stage, const Machine& machine, int vectors)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        loops_(tile_loops()),
        none_(clamp_of(no_act)),
        threads_(std::max(1, machine.threads)),
        pool_rows_(math::pool_rows(stage, shapes_.p)),
        pool_columns_(math::pool_columns(stage, shapes_.q)),
        blocks_(filter_blocks(taps_apart(stage), vectors, loops_)),
        w_(blocks_.back().weights + static_cast<std::size_t>(stage.c * blocks_.back().width)),
        k_padded_(ceil_div(stage.k, quad) * quad) {
    Index width = 0;
    for (const Bands::Block& block : blocks_) width += block.width;
    // What lies behind the last tap's filters is read with them, and thrown away.
    sum_pitch_ = ceil_div(width + quad, 16) * 16;
    const Index cache = static_cast<Index>(machine.l2_bytes / sizeof(float)) / 3;
    while (max_rows_ < shapes_.out_h && slot_floats(max_rows_ + 1) <= cache) ++max_rows_;
  }

  void set_weights(const float* w) override {
    const Index taps = stage_.r * stage_.s;
    std::fill_n(w_.data(), w_.size(), 0.0F);
    for (const Bands::Block& block : blocks_)
      for (Index i = 0; i < block.count; ++i) {
        const Index tap = (block.first + i) / stage_.k, k = (block.first + i) % stage_.k;
        const float* from = w + (k * taps + tap) * stage_.c;
        float* to = w_.data() + block.weights + i;
        for (Index c = 0; c < stage_.c; ++c) to[c * block.width] = from[c];
      }
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(zeros + threads_ * slot_floats(max_rows_)) * sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    float* no_bias = reinterpret_cast<float*>(args.workspace);
    std::fill_n(no_bias, zeros, 0.0F);
    // Bands of one image each, all of nearly the same height.
    Index bands = ceil_div(shapes_.out_h, max_rows_);
    while (bands < shapes_.out_h && args.n * bands < threads_) ++bands;
    args.threads->for_each(args.n * bands, [&](Index task, int slot) {
      const Index band = task % bands;
      run_band(args, no_bias, task / bands, shapes_.out_h * band / bands,
               shapes_.out_h * (band + 1) / bands, no_bias + zeros + slot * slot_floats(max_rows_));
    });
    return Status();
  }

 private:
  static constexpr Index zeros = 16 * max_tile_vectors;

  Index conv_rows(Index out_rows) const {
    const Index window = (pool_rows_.window - 1) * pool_rows_.dil + 1;
    return std::min(shapes_.p, out_rows * pool_rows_.stride + window);
  }
  Index slot_floats(Index out_rows) const {
    const Index rows = conv_rows(out_rows);
    const Index inputs = std::min(stage_.h, rows + (stage_.r - 1) * stage_.dil.h);
    return ceil_div(inputs * stage_.w * sum_pitch_ + 16, 16) * 16 +
           ceil_div(rows * shapes_.q * k_padded_, 16) * 16;
  }

  void run_band(const RunArgs& args, const float* no_bias, Index image, Index out_begin,
                Index out_end, float* sums) const {
    Index p_begin = pool_rows_.begin(out_begin), p_end = p_begin;
    for (Index o = out_begin; o < out_end; ++o) {
      p_begin = std::min(p_begin, pool_rows_.begin(o));
      p_end = std::max(p_end, pool_rows_.end(o));
    }
    const Index h_begin = std::clamp<Index>(p_begin - stage_.pad.top, 0, stage_.h);
    const Index h_end = std::clamp<Index>(
        p_end - 1 - stage_.pad.top + (stage_.r - 1) * stage_.dil.h + 1, h_begin, stage_.h);
    const Index pixels = (h_end - h_begin) * stage_.w;
    float* plane = sums + ceil_div(pixels * sum_pitch_ + 16, 16) * 16;
    for (const Bands::Block& block : blocks_)
      sum_taps(args, no_bias, image, h_begin, pixels, block, sums);
    add_taps(args, p_begin, p_end, h_begin, h_end, sums, plane);
    pool(args, image, out_begin, out_end, p_begin, plane);
  }

  // sums[pixel][tap][k] = the tap's share of the output that it belongs to.
  void sum_taps(const RunArgs& args, const float* no_bias, Index image, Index h_begin, Index pixels,
                const Bands::Block& block, float* sums) const {
    const Run run{0, stage_.c, 0};
    Index at[max_tile_pixels], to[max_tile_pixels];
    TileArgs tile;
    tile.x =
        static_cast<const float*>(args.x) + image * args.x_stride.n + h_begin * args.x_stride.h;
    tile.at = at;
    tile.runs = &run;
    tile.run_count = 1;
    tile.w = w_.data() + block.weights;
    tile.bias = no_bias;
    tile.clamp = none_;
    tile.y = sums + block.first;
    tile.to = to;
    tile.valid = block.width;
    const auto vectors = static_cast<std::size_t>(block.vectors);
    const Index tiles = ceil_div(pixels, loops_.max_pixels[vectors]);
    for (Index i = 0; i < tiles; ++i) {
      const Index begin = pixels * i / tiles, count = pixels * (i + 1) / tiles - begin;
      for (Index j = 0; j < count; ++j) {
        const Index pixel = begin + j;
        at[j] = pixel / stage_.w * args.x_stride.h + pixel % stage_.w * args.x_stride.w;
        to[j] = pixel * sum_pitch_;
      }
      loops_.plain[vectors][static_cast<std::size_t>(count)](tile);
    }
  }

  // plane[pixel][k] = act(bias + the taps inside the image, in the order r, s)
  void add_taps(const RunArgs& args, Index p_begin, Index p_end, Index h_begin, Index h_end,
                const float* sums, float* plane) const {
    for (Index p = p_begin; p < p_end; ++p)
      for (Index q = 0; q < shapes_.q; ++q)
        for (Index k = 0; k < k_padded_; k += quad, plane += quad) {
          float sum[quad] = {};
          for (Index r = 0; r < stage_.r; ++r) {
            const Index h = p - stage_.pad.top + r * stage_.dil.h;
            if (h < h_begin || h >= h_end) continue;
            const float* row = sums + (h - h_begin) * stage_.w * sum_pitch_ + k;
            for (Index s = 0; s < stage_.s; ++s) {
              const Index w = q - stage_.pad.left + s * stage_.dil.w;
              if (w < 0 || w >= stage_.w) continue;
              const float* tap = row + w * sum_pitch_ + (r * stage_.s + s) * stage_.k;
              for (Index i = 0; i < quad; ++i) sum[i] += tap[i];
            }
          }
          for (Index i = 0; i < quad; ++i) {
            const float bias = args.bias && k + i < stage_.k ? args.bias[k + i] : 0.0F;
            plane[i] = math::activate(stage_.act.kind, stage_.act.a, stage_.act.b, sum[i] + bias);
          }
        }
  }

  void pool(const RunArgs& args, Index image, Index out_begin, Index out_end, Index p_begin,
            const float* plane) const {
    float* y = static_cast<float*>(args.y) + image * args.y_stride.n;
    for (Index o = out_begin; o < out_end; ++o)
      for (Index column = 0; column < shapes_.out_w; ++column)
        for (Index k = 0; k < stage_.k; ++k) {
          float best = -std::numeric_limits<float>::infinity();  // of a window of padding alone
          for (Index p = pool_rows_.begin(o); p < pool_rows_.end(o); p += pool_rows_.dil)
            for (Index q = pool_columns_.begin(column); q < pool_columns_.end(column);
                 q += pool_columns_.dil) {
              const float value = plane[((p - p_begin) * shapes_.q + q) * k_padded_ + k];
              if (math::beats(value, best)) best = value;
            }
          y[o * args.y_stride.h + column * args.y_stride.w + k] = best;
        }
  }

  Stage stage_;
  Shapes shapes_;
  const TileLoops& loops_;
  Clamp none_;
  int threads_;
  math::PoolAxis pool_rows_, pool_columns_;
  std::vector<Bands::Block> blocks_;
  Buffer<float> w_;
  Index k_padded_;
  Index sum_pitch_ = 0;
  Index max_rows_ = 1;
};

class FewFilters final : public Kernel {
 public:
  std::string_view name() const override { return "few_filters"; }
  std::string_view arithmetic() const override { return "taps apart"; }
  bool exact() const override { return true; }
  DeviceKind device() const override { return DeviceKind::cpu; }

  std::vector<std::string> refusals(const Stage& stage, const Machine& machine) const override {
    std::vector<std::string> reasons = refusals_of_bands(stage, machine);
    if (stage.groups != 1) reasons.push_back(fmt::format("{} groups: it takes one", stage.groups));
    if (stage.k > max_filters)
      reasons.push_back(fmt::format("K = {}: it takes up to {} filters", stage.k, max_filters));
    if (stage.c < 16) reasons.push_back(fmt::format("C = {}: it pays from 16 channels", stage.c));
    if (stage.r * stage.s == 1) reasons.push_back("filters 1x1: it makes filters of the taps");
    if (stage.stride != Extent{1}) reasons.push_back("stride: it computes all taps of every pixel");
    if (stage.dtype != DType::f32) reasons.push_back("input u8: it reads f32 where it lies");
    if (stage.norm) reasons.push_back("norm: it reads its input where it lies");
    return reasons;
  }

  // a: vectors of filters.
  std::vector<Tile> tiles(const Stage& stage, const Machine&) const override {
    const TileLoops& loops = tile_loops();
    const int vectors = stage.k * stage.r * stage.s > loops.lanes ? 2 : 1;
    return {{fmt::format("{}x{}", loops.max_pixels[static_cast<std::size_t>(vectors)],
                         vectors * loops.lanes),
             vectors}};
  }

  Cost cost(const Stage& stage, const Tile& tile, const Machine& machine) const override {
    const Shapes shapes = shapes_of(stage);
    Cost cost = cost_of_bands(taps_apart(stage), tile.a, machine);
    cost.waste = 1 - 2 * static_cast<double>(shapes.macs) / cost.flops;
    cost.bytes =
        4.0 * static_cast<double>(shapes.x_elements + shapes.w_elements + shapes.y_elements);
    constexpr double cycle = 1 / 3.0e9;
    const double quads = static_cast<double>(shapes.gemm_m * ceil_div(stage.k, quad));
    cost.seconds +=
        quads * (3.0 * static_cast<double>(stage.r * stage.s) + 20) * cycle / machine.threads;
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& machine) const override {
    return std::make_unique<FewFiltersPrepared>(stage, machine, tile.a);
  }
};

}  // namespace

const Kernel& few_filters() {
  static const FewFilters kernel;
  return kernel;
}

}  // namespace convoy::cpu
