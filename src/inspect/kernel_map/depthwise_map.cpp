// The map of the GPU's `depthwise`: by depthwise_tile.hpp and depthwise_thread.hpp of src/cuda/any,
// which the kernel is made of. It has no slots: a thread multiplies what it loads.
#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "cuda/any/depthwise_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "math/index_map.hpp"

namespace convoy::inspect {
namespace {

constexpr const char* no_shared_memory = "shared memory: its threads multiply from registers";

class DepthwiseMap final : public KernelMap {
 public:
  DepthwiseMap(const Stage& stage, const cuda::DepthwiseTile& tile, const std::string& machine)
      : KernelMap(stage, "depthwise", cuda::depthwise_tile_name(tile), machine),
        tile_of_(tile),
        at_(cuda::depthwise_layout(stage, tile)),
        walk_(at_),
        compiled_(cuda::is_compiled_in(stage)),
        count_(cuda::depthwise_channels(stage)),
        stride_(static_cast<int>(stage.stride.h)),
        in_rows_(math::conv_rows<int>(stage)),
        in_columns_(math::conv_columns<int>(stage)) {}

  std::vector<MapFact> facts() const override {
    const Stage& s = stage();
    std::vector<MapFact> all;
    const auto add = [&](const char* name, std::string value, std::string note) {
      all.push_back({name, std::move(value), std::move(note)});
    };
    add("thread", fmt::format("{} x {} x {}", tile_of_.rows, tile_of_.columns, count_),
        fmt::format("rows, columns, neighbouring channels of outputs{}",
                    s.pool ? ", with whole windows of the pool" : ""));
    add("CTA", fmt::format("{} threads", threads()),
        fmt::format("{} x {} x {}: down, across, along the channels", at_.down, at_.across,
                    at_.lanes));
    add("grid", fmt::format("{}", ctas()),
        fmt::format("{} x {} x {} x {} CTAs: images, along the rows, the columns, the channels "
                    "(fastest)",
                    s.n, at_.row_blocks, at_.column_blocks, at_.channel_blocks));
    add("iterations", fmt::format("{}", steps()),
        compiled_ ? fmt::format("rows of x: {} positions each, which feed every output that they "
                                "are a tap of",
                                width())
                  : "taps, in the order r, s: any filter, one load for each output");
    add("loads", fmt::format("{}", per_step()),
        fmt::format("per thread in each iteration, {} bytes each",
                    count_ * static_cast<int>(size_of(s.dtype))));
    add("accumulators", fmt::format("{}", registers()),
        fmt::format("registers of a thread: sums[{}][{}][{}]", tile_of_.rows, tile_of_.columns,
                    count_));
    return all;
  }
  std::string order() const override {
    return "channels fastest, then columns, rows and images: neighbouring CTAs read neighbouring "
           "bytes; bytes that neighbouring threads read twice come from the L1";
  }
  std::vector<TilePlace> first_tiles(int count) const override {
    std::vector<TilePlace> all;
    for (Index cta = 0; cta < std::min<Index>(count, ctas()); ++cta)
      all.push_back(tile_at(cta, -1));
    return all;
  }
  TilePlace tile_at(Index x, Index y) const override {
    const Index pixels = ctas() / at_.channel_blocks;
    if (y < 0) {
      if (x < 0 || x >= ctas())
        throw Error(fmt::format("explain: --block {}: the launch has CTAs 0 to {}", x, ctas() - 1));
      return {x / at_.channel_blocks, x % at_.channel_blocks, x, 0};
    }
    if (x < 0 || x >= pixels || y >= at_.channel_blocks)
      throw Error(
          fmt::format("explain: --block {},{}: there are {} x {} tiles (of pixels, of channels), "
                      "numbered from 0",
                      x, y, pixels, at_.channel_blocks));
    return {x, y, x * at_.channel_blocks + y, 0};
  }

  Accumulator accumulator(const OutputIndex& output) const override {
    expect_output(stage(), output);
    if (output.p >= at_.rows || output.q >= at_.columns)
      throw Error(
          fmt::format("explain: the pool takes no window of (p {}, q {}), and the kernel "
                      "does not compute it",
                      output.p, output.q));
    const int p = static_cast<int>(output.p), q = static_cast<int>(output.q),
              k = static_cast<int>(output.k);
    const int lane = k / count_ % at_.lanes, channels = k / count_ / at_.lanes;
    const int across = q / tile_of_.columns, down = p / tile_of_.rows;
    const Index pixels =
        (output.n * at_.row_blocks + down / at_.down) * at_.column_blocks + across / at_.across;
    const int i = p % tile_of_.rows, j = q % tile_of_.columns, e = k % count_;
    Accumulator a;
    a.tile = tile_at(pixels, channels);
    a.thread = (down % at_.down * at_.across + across % at_.across) * at_.lanes + lane;
    a.warp = a.thread / 32, a.lane = a.thread % 32;
    a.number = (i * tile_of_.columns + j) * count_ + e;
    a.name = fmt::format("sums[{}][{}][{}]", i, j, e);
    a.row = (down % at_.down * tile_of_.rows + i) * at_.across * tile_of_.columns +
            across % at_.across * tile_of_.columns + j;
    a.column = lane * count_ + e;
    a.stored = fmt::format("by the same thread, with channels {} to {}{}, in one store",
                           output.k / count_ * count_, output.k / count_ * count_ + count_ - 1,
                           stage().pool ? " of its window's maximum" : " of the pixel");
    return a;
  }
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override {
    expect_thread(thread);
    if (number < 0 || number >= registers())
      throw Error(fmt::format("explain: register {}: a thread has accumulators 0 to {}", number,
                              registers() - 1));
    const cuda::DepthwisePlace at = place(tile, thread);
    const Index p = at.p + number / count_ / tile_of_.columns,
                q = at.q + number / count_ % tile_of_.columns, k = at.channel + number % count_;
    if (k >= stage().c || p >= at_.rows || q >= at_.columns) return std::nullopt;
    return OutputIndex{at.n, p, q, k};
  }

  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override {
    const Accumulator a = accumulator(output);
    const int i = static_cast<int>(output.p % tile_of_.rows),
              j = static_cast<int>(output.q % tile_of_.columns),
              e = static_cast<int>(output.k % count_);
    OperandPlace at;
    at.slot = -1, at.thread = a.thread;
    if (compiled_) {
      const int column = j * stride_ + static_cast<int>(tap.s);
      at.step = i * stride_ + tap.r;
      at.number = column * count_ + e;
      at.name = fmt::format("x[{}][{}]", column, e);
    } else {
      at.step = tap.r * stage().s + tap.s;
      at.number = (i * tile_of_.columns + j) * count_ + e;
      at.name = fmt::format("x[{}], while it is output ({}, {})'s turn", e, i, j);
    }
    at.brought = fmt::format("the thread itself, {} bytes of {} channels at once",
                             count_ * static_cast<int>(size_of(stage().dtype)), count_);
    at.read = fmt::format("fmaf with the weight of tap ({},{}), into {}", tap.r, tap.s, a.name);
    return at;
  }
  InputElement loaded(const TilePlace& tile, int thread, Index step, int number) const override {
    const cuda::DepthwisePlace at = place(tile, thread);
    const int one = number / count_, at_step = static_cast<int>(step);
    InputElement x;
    x.bytes = static_cast<int>(size_of(stage().dtype));
    if (compiled_) {
      x.h = at.p * stride_ - in_rows_.pad + at_step;
      x.w = at.q * stride_ - in_columns_.pad + one;
    } else {
      const int s = static_cast<int>(stage().s);
      x.h = in_rows_.at(at.p + one / tile_of_.columns, at_step / s);
      x.w = in_columns_.at(at.q + one % tile_of_.columns, at_step % s);
    }
    x.n = at.n, x.c = at.channel + number % count_;
    x.inside = x.c < stage().c && at.p < at_.rows && at.q < at_.columns &&
               in_rows_.inside(static_cast<int>(x.h)) && in_columns_.inside(static_cast<int>(x.w));
    if (x.inside)
      x.byte = (((x.n * stage().h + x.h) * stage().w + x.w) * stage().c + x.c) * x.bytes;
    return x;
  }

  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override {
    expect_thread(thread);
    if (step < 0 || step >= steps())
      throw Error(fmt::format("explain: --step {}: a thread has steps 0 to {}", step, steps() - 1));
    const cuda::DepthwisePlace at = place(tile, thread);
    ThreadStep what;
    what.role = fmt::format("outputs from (n {}, p {}, q {}) on, channels {} to {}", at.n, at.p,
                            at.q, at.channel, at.channel + count_ - 1);
    what.heading = {"load", "reads (n,h,w)", "of x"};
    for (int i = 0; i < per_step(); ++i) {
      const InputElement x = loaded(tile, thread, step, i * count_);
      what.rows.push_back(
          {fmt::format("{}", i), fmt::format("({},{},{})", x.n, x.h, x.w),
           x.inside ? fmt::format("{} bytes at {}", count_ * x.bytes, x.byte) : "zeros"});
    }
    if (!output_of(tile, thread, 0))
      what.notes.emplace_back("it has no output, and leaves at once");
    else if (!compiled_)
      what.notes.push_back(
          fmt::format("tap ({},{}) of every output", step / stage().s, step % stage().s));
    for (int row = 0; compiled_ && row < tile_of_.rows; ++row) {
      const Index r = step - Index{row} * stride_;
      if (r >= 0 && r < stage().r)
        what.notes.push_back(
            fmt::format("row {} of its outputs takes the row of x with taps ({},0) "
                        "to ({},{})",
                        at.p + row, r, r, stage().s - 1));
    }
    return what;
  }

  SharedMemoryMap shared_memory() const override { lacks(no_shared_memory); }
  Pipeline pipeline() const override { lacks("pipeline of slots: " + std::string(no_slots)); }

 private:
  static constexpr const char* no_slots = "its threads wait for their own loads";

  int threads() const { return at_.lanes * at_.across * at_.down; }
  Index ctas() const { return stage().n * at_.row_blocks * at_.column_blocks * at_.channel_blocks; }
  int registers() const { return tile_of_.rows * tile_of_.columns * count_; }
  int width() const { return (tile_of_.columns - 1) * stride_ + static_cast<int>(stage().s); }
  Index steps() const {
    return compiled_ ? (tile_of_.rows - 1) * stage().stride.h + stage().r : stage().r * stage().s;
  }
  int per_step() const { return compiled_ ? width() : tile_of_.rows * tile_of_.columns; }
  cuda::DepthwisePlace place(const TilePlace& tile, int thread) const {
    return cuda::depthwise_place(walk_, thread, static_cast<int>(tile.cta), count_, tile_of_.rows,
                                 tile_of_.columns);
  }
  void expect_thread(int thread) const {
    if (thread < 0 || thread >= threads())
      throw Error(fmt::format("explain: --thread {}: a CTA of depthwise has threads 0 to {} here",
                              thread, threads() - 1));
  }

  cuda::DepthwiseTile tile_of_;
  cuda::DepthwiseLayout at_;
  cuda::DepthwiseWalk walk_;
  bool compiled_;
  int count_, stride_;
  math::ConvAxis<int> in_rows_, in_columns_;
};

}  // namespace

std::unique_ptr<KernelMap> map_depthwise(const Stage& stage, const Machine& machine,
                                         const std::string& tile) {
  expect_served("depthwise", stage, cuda::depthwise_refusals(stage));
  const std::vector<cuda::DepthwiseTile> tiles = cuda::depthwise_tiles(stage);
  const cuda::DepthwiseTile* best = nullptr;
  std::string names;
  for (const cuda::DepthwiseTile& one : tiles) {
    const std::string name = cuda::depthwise_tile_name(one);
    names += (names.empty() ? "" : ", ") + name;
    if (tile.empty() ? !best || cuda::depthwise_seconds(stage, one, machine) <
                                    cuda::depthwise_seconds(stage, *best, machine)
                     : name == tile)
      best = &one;
  }
  if (!best)
    throw Error(
        fmt::format("explain: --tile \"{}\": depthwise has for this stage {}", tile, names));
  return std::make_unique<DepthwiseMap>(stage, *best, machine.name);
}

}  // namespace convoy::inspect
