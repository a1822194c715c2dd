// The kernel `few_filters`: few filters over many channels, as the last layer of a decoder has
// them. Vectors of filters would be mostly empty, so vectors hold channels: a pixel's input and a
// tap's weights are multiplied lane by lane, and the lanes are added up at the end.
#include "cpu/few_filters/few_filters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/pool_rows.hpp"
#include "cpu/shared/post_ops.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {
namespace {
using math::ceil_div;

struct FewFiltersWeights final : PackedWeights {
  Buffer<float> parts;  // [part][tap][vector of channels][filter][lane]
  bool finite = true;
};

class FewFiltersPrepared final : public CpuPrepared<FewFiltersWeights> {
 public:
  FewFiltersPrepared(const Stage& stage, const Machine& machine)
      : stage_(stage),
        shapes_(shapes_of(stage)),
        loops_(few_filters_loops::loops(stage.k)),
        epilogue_(stage.act),
        post_(stage),
        threads_(std::max(1, machine.threads)),
        pool_rows_(math::pool_rows(stage, shapes_.p)),
        pool_columns_(math::pool_columns(stage, shapes_.q)),
        taps_(stage.r * stage.s) {
    // A part's weights stay in L1, beside the pixels that are streamed.
    const Index cached = static_cast<Index>(machine.l1_bytes / sizeof(float)) * 3 / 4;
    const Index most = std::max<Index>(loops_.lanes, cached / (taps_ * stage.k));
    parts_ = ceil_div(stage.c, most);
    part_ = ceil_div(ceil_div(stage.c, parts_), loops_.lanes) * loops_.lanes;
    parts_ = ceil_div(stage.c, part_);
    zeros_ = Buffer<float>(static_cast<std::size_t>(part_));
    std::fill_n(zeros_.data(), zeros_.size(), 0.0F);
    const Index cache = static_cast<Index>(machine.l2_bytes / sizeof(float)) / 4;
    while (max_rows_ < shapes_.out_h && plane_floats(max_rows_ + 1) <= cache) ++max_rows_;
    two_rows_ = pays_two_rows(machine);
    // With more filters, or fewer channels, what is asked for ahead takes longer than it hides.
    const Index held = static_cast<Index>(machine.l2_bytes / sizeof(float));
    streams_ = taps_ == 1 && stage.k <= 2 && stage.c >= 64 && shapes_.x_elements > held;
  }

  std::string packing() const override {
    return fmt::format("{} in parts of {}", weights_shape(stage_), part_);
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(bias_floats() + threads_ * slot_floats(max_rows_)) *
           sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    float* const bias = reinterpret_cast<float*>(args.workspace);
    for (Index i = 0; i < stage_.k * loops_.lanes; ++i)
      bias[i] = args.bias ? args.bias[i % stage_.k] : 0.0F;
    // Bands of one image each, all of nearly the same height, a few for each thread.
    const Index enough = threads_ == 1 ? 1 : 4 * threads_;
    Index bands = ceil_div(shapes_.out_h, max_rows_);
    while (bands < shapes_.out_h && args.n * bands < enough) ++bands;
    args.threads->for_each(args.n * bands, [&](Index task, int slot) {
      const Index band = task % bands;
      float* const scratch = bias + bias_floats() + slot * slot_floats(max_rows_);
      run_band(args, bias, task / bands, shapes_.out_h * band / bands,
               shapes_.out_h * (band + 1) / bands, scratch);
    });
    return Status();
  }

 protected:
  void lay_out(const float* w, FewFiltersWeights& to) const override {
    to.parts = Buffer<float>(static_cast<std::size_t>(parts_ * part_ * taps_ * stage_.k));
    std::fill_n(to.parts.data(), to.parts.size(), 0.0F);
    for (Index k = 0; k < stage_.k; ++k)
      for (Index tap = 0; tap < taps_; ++tap)
        for (Index c = 0; c < stage_.c; ++c) {
          const float value = w[(k * taps_ + tap) * stage_.c + c];
          to.parts[static_cast<std::size_t>(at(k, tap, c))] = value;
          to.finite = to.finite && std::isfinite(value);
        }
  }

 private:
  static constexpr Index line_bytes = 64, line_floats = line_bytes / sizeof(float);

  // What a thread has for itself.
  struct Scratch {
    const float** x;  // [taps][pixels]
    const float** w;  // [taps]
    float* sums;   // [tiles of a row or two][pixels][filters][lanes], where there are several parts
    float* plane;  // [rows][Q][filters]
  };
  Scratch scratch_of(float* slot) const {
    Scratch s;
    s.x = reinterpret_cast<const float**>(slot);
    s.w = s.x + taps_ * loops_.pixels;
    s.sums = slot + pointers();
    s.plane = s.sums + sums_floats();
    return s;
  }
  Index bias_floats() const { return ceil_div(stage_.k * loops_.lanes, 16) * 16; }
  Index pointers() const {
    const auto bytes = taps_ * (loops_.pixels + 1) * static_cast<Index>(sizeof(void*));
    return ceil_div(bytes, line_bytes) * line_floats;
  }
  // Whether tiles of two rows pay: where they read fewer inputs a pixel, by a tenth or more, and
  // these come from L2, as a tile's inputs and weights exceed the first; but
  // twice the sums that wait for the next part of the channels must fit in it as well.
  bool pays_two_rows(const Machine& machine) const {
    const Index columns = loops_.pixels / 2;
    if (loops_.pixels % 2 != 0 || shapes_.q < columns) return false;
    if (stage_.stride != Extent(1) || stage_.dil != Extent(1)) return false;
    const Index one = stage_.r * (loops_.pixels + stage_.s - 1),
                two = (stage_.r + 1) * (columns + stage_.s - 1);
    const Index floats = (one + taps_ * stage_.k) * stage_.c;
    const auto l1 = static_cast<Index>(machine.l1_bytes / sizeof(float));
    return 10 * two < 9 * one && floats > l1 && 6 * sums_floats() <= l1;
  }
  // The tile that row p begins: two rows only where all their taps lie inside the image.
  Extent tile_at(Index p, Index end) const {
    const bool two = two_rows_ && p + 2 <= end && p >= stage_.pad.top &&
                     p + 1 - stage_.pad.top + stage_.r <= stage_.h;
    if (two) return {2, loops_.pixels / 2};
    return {1, shapes_.q < loops_.pixels ? 1 : loops_.pixels};
  }
  Index most_tiles_of_rows() const {
    const Index columns = std::max<Index>(1, loops_.pixels / 2);
    return shapes_.q < loops_.pixels ? shapes_.q : ceil_div(shapes_.q, columns);
  }
  Index tile_floats() const { return loops_.pixels * stage_.k * loops_.lanes; }
  Index sums_floats() const { return parts_ > 1 ? most_tiles_of_rows() * tile_floats() : 0; }
  Index conv_rows(Index out_rows) const {
    const Index window = (pool_rows_.window - 1) * pool_rows_.dil + 1;
    return std::min(shapes_.p, out_rows * pool_rows_.stride + window);
  }
  Index plane_floats(Index out_rows) const { return conv_rows(out_rows) * shapes_.q * stage_.k; }
  Index slot_floats(Index out_rows) const {
    // The pool reads whole vectors.
    return pointers() + sums_floats() + ceil_div(plane_floats(out_rows) + loops_.lanes, 16) * 16;
  }
  // Where the weights of a tap begin, and where one of them lies.
  Index tap_at(Index part, Index tap) const { return (part * taps_ + tap) * part_ * stage_.k; }
  Index at(Index k, Index tap, Index c) const {
    const Index vector = c % part_ / loops_.lanes, lane = c % loops_.lanes;
    return tap_at(c / part_, tap) + (vector * stage_.k + k) * loops_.lanes + lane;
  }

  void run_band(const RunArgs& args, const float* bias, Index image, Index out_begin, Index out_end,
                float* slot) const {
    const Scratch scratch = scratch_of(slot);
    const Index row = shapes_.q * stage_.k;
    float* const y = static_cast<float*>(args.y) + image * args.y_stride.n;
    if (!stage_.pool && args.y_stride.w == stage_.k) {
      run_rows(args, bias, image, out_begin, out_end, scratch, y + out_begin * args.y_stride.h,
               args.y_stride.h);
      return;
    }
    const Index p_begin = pool_rows_.lowest(out_begin), p_end = pool_rows_.end(out_end - 1);
    run_rows(args, bias, image, p_begin, p_end, scratch, scratch.plane, row);
    const RowsToPool rows{pool_rows_, pool_columns_, shapes_.q, stage_.k,
                          stage_.k,   scratch.plane, p_begin,   post_};
    pool_rows(rows, out_begin, out_end, shapes_.out_w, y, args.y_stride);
  }

  // y[q][k] of rows [p, end) of the convolution, finished; `y_row`: floats between two rows of y.
  void run_rows(const RunArgs& args, const float* bias, Index image, Index p, Index end,
                const Scratch& s, float* y, Index y_row) const {
    const float* const x = static_cast<const float*>(args.x) + image * args.x_stride.n;
    while (p < end) {
      const Extent tile = tile_at(p, end);
      const Index tiles = ceil_div(shapes_.q, tile.w);
      few_filters_loops::PixelArgs a;
      a.pixel = stage_.stride.w * args.x_stride.w;
      a.row = stage_.stride.h * args.x_stride.h;
      for (Index part = 0; part < parts_; ++part) {
        a.channels = std::min(part_, stage_.c - part * part_);
        a.first = part == 0;
        a.last = part + 1 == parts_;
        for (Index t = 0; t < tiles; ++t) {
          // The last tile ends with the row: it may compute some pixels again.
          const Index q = std::min(t * tile.w, shapes_.q - tile.w);
          a.sums = s.sums + t * tile_floats();
          a.y = y + q * stage_.k;
          run_tile(args.x_stride, x, p, q, tile, part, s, a, y_row);
        }
      }
      for (Index row = 0; row < tile.h; ++row, ++p, y += y_row) {
        if (!loops_.all_finite(y, shapes_.q * stage_.k)) repair_row(args.x_stride, x, p, y);
        loops_.finish(y, shapes_.q * stage_.k, bias, epilogue_);
        finish_unpooled_rows(post_, {y, 1, 0, shapes_.q, stage_.k, stage_.k});
      }
    }
  }

  // Sums of row p that are not finite, again and one product after the other: partial sums of some
  // lanes may have overflowed, and met an infinity of the other sign, where no sum of all does.
  void repair_row(const Strides& stride, const float* x, Index p, float* y) const {
    for (Index i = 0; i < shapes_.q * stage_.k; ++i) {
      if (std::isfinite(y[i])) continue;
      const Index q = i / stage_.k, k = i % stage_.k;
      double sum = 0;
      for (Index r = 0; r < stage_.r; ++r)
        for (Index s = 0; s < stage_.s; ++s) {
          const Index h = p * stage_.stride.h - stage_.pad.top + r * stage_.dil.h;
          const Index w = q * stage_.stride.w - stage_.pad.left + s * stage_.dil.w;
          if (h < 0 || h >= stage_.h || w < 0 || w >= stage_.w) continue;
          const float* const pixel = x + h * stride.h + w * stride.w;
          for (Index c = 0; c < stage_.c; ++c)
            sum +=
                static_cast<double>(pixel[c]) * static_cast<double>(weight(k, r * stage_.s + s, c));
        }
      y[i] = static_cast<float>(sum);
    }
  }
  float weight(Index k, Index tap, Index c) const {
    return weights().parts[static_cast<std::size_t>(at(k, tap, c))];
  }

  // The tile's pixels from column q of row p on, some of their channels, to a.y.
  void run_tile(const Strides& stride, const float* x, Index p, Index q, Extent tile, Index part,
                const Scratch& s, few_filters_loops::PixelArgs a, Index y_row) const {
    const Index pixels = tile.h * tile.w;
    const Index w_first = q * stage_.stride.w - stage_.pad.left;
    const Index w_last = w_first + (tile.w - 1) * stage_.stride.w + (stage_.s - 1) * stage_.dil.w;
    const bool inside = w_first >= 0 && w_last < stage_.w;
    // Zeros stand for the pixels outside the image; but not where they would meet an infinity.
    if (!inside && !weights().finite && pixels > 1) {
      for (Index row = 0; row < tile.h; ++row)
        for (Index column = 0; column < tile.w; ++column) {
          few_filters_loops::PixelArgs one = a;
          one.sums += (row * tile.w + column) * stage_.k * loops_.lanes;
          one.y += row * y_row + column * stage_.k;
          run_tile(stride, x, p + row, q + column, {1, 1}, part, s, one, y_row);
        }
      return;
    }
    a.x = s.x;
    a.w = s.w;
    const bool listed = !inside && pixels > 1;
    // A row's taps that follow one another in memory are one tap of more channels.
    const bool runs =
        inside && pixels > 1 && stage_.dil.w == 1 && stage_.c == part_ && stride.w == part_;
    if (runs) a.channels *= stage_.s;
    for (Index r = 0; r < stage_.r; ++r) {
      const Index h = p * stage_.stride.h - stage_.pad.top + r * stage_.dil.h;
      if (h < 0 || h >= stage_.h) continue;
      const float* const row = x + h * stride.h + part * part_;
      for (Index column = 0; column < (runs ? 1 : stage_.s); ++column) {
        const Index w = w_first + column * stage_.dil.w;
        if (pixels == 1 && (w < 0 || w >= stage_.w)) continue;
        s.w[a.taps] = weights().parts.data() + tap_at(part, r * stage_.s + column);
        const auto list = [&](const float** to, const float* from) {
          for (Index i = 0; i < tile.w; ++i) {
            const Index at = w + i * stage_.stride.w;
            to[i] = at >= 0 && at < stage_.w ? from + at * stride.w : zeros_.data();
          }
        };
        if (listed) {
          list(s.x + a.taps * pixels, row);
          if (tile.h == 2) list(s.x + a.taps * pixels + tile.w, row + a.row);
        } else {
          s.x[a.taps] = row + w * stride.w;
        }
        ++a.taps;
      }
    }
    const few_filters_loops::PixelLoop loop = pixels == 1   ? loops_.one
                                              : listed      ? loops_.border
                                              : tile.h == 2 ? loops_.rows
                                                            : loops_.tile;
    if (streams_) fetch_ahead(a, tile);
    if (tile.h == 1 || !a.last) {
      loop(a);
      return;
    }
    float both[few_filters_loops::max_pixels * few_filters_loops::max_filters];
    float* const y = a.y;
    a.y = both;
    loop(a);
    for (Index row = 0, count = tile.w * stage_.k; row < tile.h; ++row)
      std::copy_n(both + row * count, count, y + row * y_row);
  }

  // Asks for the inputs of a later tile. The loop goes through the pixels of a tile side by side,
  // in runs too short for the hardware's prefetcher.
  static void fetch_ahead(const few_filters_loops::PixelArgs& a, Extent tile) {
    constexpr Index line = 16, far = 1024;  // floats
    const float* pixel = a.x[0] + far;
    for (Index i = 0; i < tile.w; ++i, pixel += a.pixel)
      for (Index c = 0; c < a.channels; c += line) __builtin_prefetch(pixel + c);
  }

  Stage stage_;
  Shapes shapes_;
  const few_filters_loops::Loops& loops_;
  Epilogue epilogue_;
  PostOps post_;
  int threads_;
  math::PoolAxis pool_rows_, pool_columns_;
  Index taps_;
  Index parts_ = 1, part_ = 0;  // of the channels, each of so many
  Buffer<float> zeros_;
  bool two_rows_ = false;  // some tiles are of two rows
  bool streams_ = false;   // the input comes from beyond L2, and once
  Index max_rows_ = 1;
};

Index tile_pixels(const Stage& stage, const Machine& machine) {
  return few_filters_loops::pixels_of(static_cast<int>(stage.k), machine.vector_registers);
}

constexpr Serves served_by_few_filters{
    .types = Types(DType::f32, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = any_pool,
    .pools_first = false,
    .keep = nothing,
};

class FewFilters final : public StageKernel {
 public:
  FewFilters()
      : StageKernel({.name = "few_filters",
                     .arithmetic = "lanes of channels",
                     .device = DeviceKind::cpu,
                     .serves = served_by_few_filters,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    Refusals(stage, why)
        .expect(stage.k <= few_filters_loops::max_filters, "K", stage.k,
                fmt::format("at most {}", few_filters_loops::max_filters))
        .expect(stage.c >= 16, "C", stage.c, "at least 16: with fewer it does not pay")
        .packing(math::rows_of_window(stage));
  }

  std::vector<Tile> tiles(const Stage& stage, const Machine& machine) const override {
    return {{fmt::format("{}x{}", tile_pixels(stage, machine), stage.k)}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const Shapes shapes = shapes_of(stage);
    const CoreCosts::FewFilters& costs = core_costs(machine).few_filters;
    const auto count = [](Index i) { return static_cast<double>(i); };
    const double cycle = 1 / core_costs(machine).clock;
    const Index pixels = tile_pixels(stage, machine), lanes = machine.vector_floats;
    const double sums = count(pixels * stage.k), taps = count(stage.r * stage.s);
    const double vectors = count(ceil_div(stage.c, lanes));
    // A step is its multiply-adds or its loads, two a cycle; the few sums of one pixel alone don't
    // hide the latency. Beside the steps of a tile there are each tap's pointers, and the lanes to
    // add.
    const double peak = machine.peak_flops / machine.threads;
    const double step = std::max(2 * sums * count(lanes) / peak,
                                 count(pixels + stage.k) / costs.loads_a_cycle * cycle) *
                        (pixels == 1 ? costs.single_pixel : 1.0);
    const double tile = taps * (vectors * step + costs.tap_cycles * cycle) +
                        (costs.sum_cycles * sums + costs.tile_cycles) * cycle;
    const double tiles = count(stage.n * shapes.p * ceil_div(shapes.q, pixels));
    const double window = stage.pool ? count(stage.pool->window.h * stage.pool->window.w) : 0;
    const double pooling = window * count(shapes.y_elements) * costs.pool_cycles * cycle;
    Cost cost;
    cost.flops = 2 * tiles * sums * taps * vectors * count(lanes);
    cost.waste = 1 - 2 * count(shapes.macs) / cost.flops;
    cost.bytes = 4 * count(shapes.x_elements + shapes.w_elements + shapes.y_elements);
    cost.seconds = std::max((tiles * tile + pooling) / machine.threads,
                            cost.bytes / machine.memory_bandwidth) +
                   start_seconds(machine);
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return std::make_unique<FewFiltersPrepared>(stage, machine);
  }
};

}  // namespace

const Kernel& few_filters() {
  static const FewFilters kernel;
  return kernel;
}

}  // namespace convoy::cpu
