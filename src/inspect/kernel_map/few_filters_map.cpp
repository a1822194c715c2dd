// The map of the GPU's `few_filters`: by few_filters_layout.hpp of src/cuda/any, which the kernel
// is made of. It has no slots: a lane multiplies the channels that it loads, and lanes add up their
// sums.
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "convoy/error.hpp"
#include "cuda/any/few_filters_layout.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "math/divide.hpp"
#include "math/index_map.hpp"

namespace convoy::inspect {
namespace {

constexpr int strip_pixels = cuda::few_filters_pixels;

class FewFiltersMap final : public KernelMap {
 public:
  FewFiltersMap(const Stage& stage, int threads, const std::string& machine)
      : KernelMap(stage, "few_filters", cuda::few_filters_tile_name(threads), machine),
        threads_(threads),
        layout_(cuda::few_filters_layout(stage)),
        lanes_(layout_.channels.lanes),
        log_lanes_(std::countr_zero(static_cast<unsigned>(lanes_))),
        vector_(layout_.channels.vector),
        in_rows_(math::conv_rows<Index>(stage)),
        in_columns_(math::conv_columns<Index>(stage)) {
    if (layout_.flat) in_rows_.size = 1, in_columns_.size = layout_.q;
  }

  std::vector<MapFact> facts() const override {
    std::vector<MapFact> all;
    const auto add = [&](const char* name, std::string value, std::string note) {
      all.push_back({name, std::move(value), std::move(note)});
    };
    add("strip", fmt::format("{} pixels", strip_pixels),
        layout_.flat ? "side by side, with all images in sequence"
                     : "in an output row, side by side");
    add("lanes", fmt::format("{}", lanes_),
        fmt::format("per warp, which share a strip; each has {} neighbouring channels of every {}",
                    vector_, layout_.channels.of_block()));
    add("CTA", fmt::format("{} threads", threads_),
        fmt::format("{} strips, one below the other", strips_of_cta()));
    add("grid", fmt::format("{}", ctas()),
        fmt::format("CTAs, for {} strips", layout_.all_strips()));
    const std::string blocks =
        fmt::format("{} {} of {} channels", layout_.channels.blocks,
                    layout_.channels.blocks == 1 ? "block" : "blocks", layout_.channels.of_block());
    add("iterations", fmt::format("{}", steps()),
        layout_.row_taps > 0
            ? fmt::format("{} x {} filter rows, whose {} taps share the loaded values", blocks,
                          stage().r, stage().s)
            : fmt::format("{} x {} x {} taps", blocks, stage().r, stage().s));
    add("loads", fmt::format("{}", width()),
        fmt::format("of x, of a lane in each iteration, {} bytes each", 4 * vector_));
    add("accumulators", fmt::format("{}", strip_pixels * layout_.filters),
        fmt::format("registers of a thread: sums[{}][{}], of its own channels", strip_pixels,
                    layout_.filters));
    add("exchanges", fmt::format("{}", log_lanes_),
        fmt::format(
            "with lanes {}: three halve a lane's pixels, until it holds one; the others add "
            "up the same pixel",
            lanes_ == 8    ? "l ^ 1, l ^ 2, l ^ 4"
            : lanes_ == 16 ? "l ^ 1, l ^ 2, l ^ 4, l ^ 8"
                           : "l ^ 1, l ^ 2, l ^ 4, l ^ 8, l ^ 16"));
    return all;
  }
  std::string order() const override {
    return "strips down the rows first, so that those of a CTA share input rows; then along a row, "
           "then from image to image";
  }
  std::vector<TilePlace> first_tiles(int count) const override {
    std::vector<TilePlace> all;
    for (Index cta = 0; cta < std::min<Index>(count, ctas()); ++cta)
      all.push_back({cta, 0, cta, 0});
    return all;
  }
  TilePlace tile_at(Index x, Index y) const override {
    if (x < 0 || x >= ctas() || y > 0)
      throw Error(
          fmt::format("explain: --block {}{}: the launch has CTAs 0 to {}, each with all "
                      "filters",
                      x, y > 0 ? fmt::format(",{}", y) : std::string(), ctas() - 1));
    return {x, 0, x, 0};
  }

  Accumulator accumulator(const OutputIndex& output) const override {
    expect_output(stage(), output);
    const Strip at = strip_of(output);
    Accumulator a;
    a.tile = tile_at(at.strip / strips_of_cta(), 0);
    int lane = 0;
    while (cuda::few_filters_pixel_of(lane) != at.pixel) ++lane;
    a.thread = static_cast<int>(at.strip % strips_of_cta()) * lanes_ + lane;
    a.warp = a.thread / 32, a.lane = a.thread % 32;
    a.number = static_cast<int>(output.k);
    a.name = fmt::format("sums[0][{}], after the exchanges", output.k);
    a.row = static_cast<int>(at.strip % strips_of_cta()) * strip_pixels + at.pixel;
    a.column = a.number;
    a.stored = "by the same lane, filter after filter";
    return a;
  }
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override {
    expect_thread(thread);
    if (number < 0 || number >= layout_.filters)
      throw Error(
          fmt::format("explain: register {}: a thread ends with the sums of filters 0 to {}",
                      number, layout_.filters - 1));
    const int lane = thread & (lanes_ - 1);
    const Index strip = strip_of(tile, thread);
    if (strip >= layout_.all_strips() || lane >= cuda::few_filters_least_lanes ||
        number >= stage().k)
      return std::nullopt;
    const cuda::FewFiltersPlace at = place(strip);
    const Index q = at.q + cuda::few_filters_pixel_of(lane);
    if (q >= layout_.q) return std::nullopt;
    if (!layout_.flat) return OutputIndex{at.n, at.p, q, number};
    const Index image = stage().h * stage().w;
    return OutputIndex{q / image, q % image / stage().w, q % stage().w, number};
  }

  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override {
    const Accumulator a = accumulator(output);
    const Strip at = strip_of(output);
    const int of_block = layout_.channels.of_block(), in_block = static_cast<int>(tap.c % of_block),
              e = in_block % vector_;
    OperandPlace one;
    one.slot = -1;
    one.thread = a.thread / lanes_ * lanes_ + in_block / vector_;
    one.step = tap.c / of_block * stage().r + tap.r;
    int pixel = at.pixel;
    if (layout_.row_taps > 0)
      pixel += static_cast<int>(tap.s);
    else
      one.step = one.step * stage().s + tap.s;
    one.number = pixel * vector_ + e;
    one.name = fmt::format("x[{}].v[{}]", pixel, e);
    one.brought = fmt::format("the thread itself, {} channels at once", vector_);
    one.read = fmt::format(
        "fmaf with filter {}'s weight, into its sums[{}][{}]; its sums and those of {} lanes more "
        "end in lane {}",
        output.k, at.pixel, output.k, lanes_ - 1, a.lane);
    return one;
  }
  InputElement loaded(const TilePlace& tile, int thread, Index step, int number) const override {
    const Stage& s = stage();
    const Index strip = strip_of(tile, thread);
    const int lane = thread & (lanes_ - 1), one = number / vector_;
    const bool by_row = layout_.row_taps > 0;
    const Index tap = by_row ? step : step / s.s, tap_s = by_row ? 0 : step % s.s;
    const Index first = tap / s.r * layout_.channels.of_block() + Index{lane} * vector_;
    InputElement x;
    x.bytes = 4, x.c = first + number % vector_;
    if (strip >= layout_.all_strips()) return x;
    const cuda::FewFiltersPlace at = place(strip);
    const Index row = in_rows_.at(at.p, tap % s.r),
                column = in_columns_.at(at.q, 0) +
                         (by_row ? one : one * in_columns_.stride + tap_s * in_columns_.dil);
    x.inside = first < s.c && in_rows_.inside(row) && in_columns_.inside(column);
    x.n = at.n, x.h = row, x.w = column;
    if (layout_.flat) {
      const Index image = s.h * s.w;
      x.n = column / image, x.h = column % image / s.w, x.w = column % s.w;
    }
    if (x.inside) x.byte = (((x.n * s.h + x.h) * s.w + x.w) * s.c + x.c) * x.bytes;
    return x;
  }

  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override {
    expect_thread(thread);
    if (step < 0 || step >= steps())
      throw Error(fmt::format("explain: --step {}: a thread has steps 0 to {}", step, steps() - 1));
    const Index strip = strip_of(tile, thread);
    const int lane = thread & (lanes_ - 1);
    ThreadStep what;
    what.role = fmt::format("lane {} of the {} of strip {}", lane, lanes_, strip);
    what.heading = {"load", "reads (n,h,w)", "channels", "of x"};
    for (int i = 0; i < width(); ++i) {
      const InputElement x = loaded(tile, thread, step, i * vector_);
      what.rows.push_back(
          {fmt::format("{}", i), fmt::format("({},{},{})", x.n, x.h, x.w),
           fmt::format("{}-{}", x.c, x.c + vector_ - 1),
           x.inside ? fmt::format("{} bytes at {}", 4 * vector_, x.byte) : "zeros"});
    }
    if (strip >= layout_.all_strips())
      what.notes.emplace_back("there is no such strip: it stays for the exchanges");
    for (int number = 0; number < std::min<Index>(2, stage().k); ++number) {
      const auto output = output_of(tile, thread, number);
      what.notes.push_back(
          output ? fmt::format("ends with sums[0][{}]: output (n {}, p {}, q {}, k {})", number,
                               output->n, output->p, output->q, output->k)
                 : fmt::format("ends with sums[0][{}]: no output of its own", number));
    }
    return what;
  }

  SharedMemoryMap shared_memory() const override {
    lacks("shared memory: its lanes multiply from registers");
  }
  Pipeline pipeline() const override {
    lacks("pipeline of slots: its lanes wait for their own loads");
  }

 private:
  /// Where a pixel is: its strip, and which of the strip's.
  struct Strip {
    Index strip = 0;
    int pixel = 0;
  };
  Strip strip_of(const OutputIndex& output) const {
    const Index position =
        layout_.flat ? (output.n * stage().h + output.p) * stage().w + output.q : output.q;
    const Index n = layout_.flat ? 0 : output.n, p = layout_.flat ? 0 : output.p;
    return {(n * layout_.strips + position / strip_pixels) * layout_.p + p,
            static_cast<int>(position % strip_pixels)};
  }
  Index strip_of(const TilePlace& tile, int thread) const {
    return cuda::few_filters_strip(static_cast<unsigned>(tile.cta), static_cast<unsigned>(threads_),
                                   static_cast<unsigned>(thread), log_lanes_);
  }
  cuda::FewFiltersPlace place(Index strip) const {
    return cuda::few_filters_place(static_cast<unsigned>(strip), static_cast<unsigned>(layout_.p),
                                   static_cast<unsigned>(layout_.strips));
  }
  int strips_of_cta() const { return threads_ / lanes_; }
  Index ctas() const { return math::ceil_div(layout_.all_strips(), Index{strips_of_cta()}); }
  Index steps() const {
    return layout_.channels.blocks * stage().r * (layout_.row_taps > 0 ? 1 : stage().s);
  }
  int width() const { return strip_pixels + (layout_.row_taps > 0 ? layout_.row_taps - 1 : 0); }
  void expect_thread(int thread) const {
    if (thread < 0 || thread >= threads_)
      throw Error(fmt::format("explain: --thread {}: a CTA of few_filters has threads 0 to {} here",
                              thread, threads_ - 1));
  }

  int threads_;
  cuda::FewFiltersLayout layout_;
  int lanes_, log_lanes_, vector_;
  math::ConvAxis<Index> in_rows_, in_columns_;
};

}  // namespace

std::unique_ptr<KernelMap> map_few_filters(const Stage& stage, const Machine& machine,
                                           const std::string& tile) {
  expect_served("few_filters", stage, cuda::few_filters_refusals(stage));
  int best = 0;
  std::string names;
  for (const int threads : cuda::few_filters_tiles(stage)) {
    const std::string name = cuda::few_filters_tile_name(threads);
    names += (names.empty() ? "\"" : ", \"") + name + "\"";
    if (tile.empty() ? best == 0 || cuda::few_filters_seconds(stage, threads, machine) <
                                        cuda::few_filters_seconds(stage, best, machine)
                     : name == tile)
      best = threads;
  }
  if (best == 0)
    throw Error(
        fmt::format("explain: --tile \"{}\": few_filters has for this stage {}", tile, names));
  return std::make_unique<FewFiltersMap>(stage, best, machine.name);
}

}  // namespace convoy::inspect
