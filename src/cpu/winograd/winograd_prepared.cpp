// A run of Winograd: blocks of tiles are transformed, multiplied and transformed back.
#include <fmt/format.h>

#include <algorithm>

#include "core/buffer.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/winograd/winograd.hpp"

namespace convoy::cpu::winograd {
namespace {

struct WinogradWeights final : PackedWeights {
  Buffer<float> packed;  // U, or W where U is made of it in a run
  Buffer<float> plain;   // [K,3,3,C]
};

class WinogradPrepared final : public CpuPrepared<WinogradWeights> {
 public:
  WinogradPrepared(const Stage& stage, const Tile& tile, const Machine& machine, Index m)
      : g_(geometry(stage, m)), simd_(simd(m, g_.stride)), tile_(tile), threads_(machine.threads) {
    panels_ = (g_.k + simd_.panel - 1) / simd_.panel;
    panel_floats_ = (g_.slice > 0 ? 9 : g_.filters) * g_.c * simd_.panel;
    zeros_ = Buffer<float>(static_cast<std::size_t>(round_up(g_.c, simd_.lanes)));
    std::fill_n(zeros_.data(), zeros_.size(), 0.0F);
    const Index most_tiles = stage.n * g_.tiles_an_image();
    most_ = std::min<Index>(tile.a, most_tiles);
    // cut() makes more and smaller blocks than this, never larger ones.
    few_ = makes_few(g_, simd_, most_);
    group_ = few_ ? simd_.few : group_tiles(g_, machine);
    v_floats_ = v_floats(most_);
    m_floats_ = round_up(g_.points * m_stride(most_, simd_.panel), 16);
    u_floats_ = g_.slice > 0 ? round_up(g_.n * u_stride(g_, simd_.panel), 16) : 0;
    cut_ = find_cut(most_tiles);
    // All tiles, and in each block one more and a group that is not full.
    const Index blocks = most_shared_blocks(most_tiles, most_, threads_);
    shared_v_floats_ = v_floats(most_tiles + blocks) + blocks * round_up(16 * g_.points + 16, 16);
    const Index held = static_cast<Index>(machine.l2_bytes / sizeof(float));
    streams_ = panels_ * panel_floats_ + v_floats_ > held;
    far_ = !streams_ && tile.b == 0 && stage.n * g_.h * g_.w * g_.c > held / 2;
  }

  std::string packing() const override {
    return fmt::format("k{}c{} stride {}", g_.k, g_.c, g_.stride);
  }

  std::size_t workspace_bytes() const override {
    const Index v = shared() ? shared_v_floats_ : threads_ * v_floats_;
    return static_cast<std::size_t>(v + threads_ * (m_floats_ + u_floats_)) * sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    Tensors t;
    t.x = static_cast<const float*>(args.x);
    t.x_stride = args.x_stride;
    t.weights = weights().plain.data();
    t.zeros = zeros_.data();
    t.bias = args.bias;
    t.y = static_cast<float*>(args.y);
    t.y_stride = args.y_stride;
    const Index tiles = args.n * g_.tiles_an_image();
    const Cut plan = tiles == cut_.tiles ? cut_ : find_cut(tiles);
    float* const v = reinterpret_cast<float*>(args.workspace);
    if (shared())
      run_shared(t, plan, v, *args.threads);
    else
      run_blocks(t, plan, v, *args.threads);
    return {};
  }

 protected:
  void lay_out(const float* w, WinogradWeights& to) const override {
    to.packed = Buffer<float>(static_cast<std::size_t>(panels_ * panel_floats_));
    to.plain = Buffer<float>(static_cast<std::size_t>(g_.k * 9 * g_.c));
    std::copy_n(w, to.plain.size(), to.plain.data());
    winograd::pack(g_, simd_.panel, w, to.packed.data());
  }

 private:
  bool shared() const { return tile_.b > 0; }
  Index chunks() const { return (panels_ + tile_.b - 1) / tile_.b; }  // of filters, where shared()
  // V of a block of so many tiles.
  Index v_floats(Index tiles) const {
    const Index groups = (tiles + group_ - 1) / group_;
    return round_up(g_.points * (round_up(g_.c, simd_.lanes) * tiles + 16 * groups), 16);
  }
  Cut find_cut(Index tiles) const { return cut_by(tile_, tiles, most_, panels_, threads_); }

  void transform_group(const Tensors& t, const Block& block, Index group, float* v) const {
    const Index begin = block.begin(group), count = block.begin(group + 1) - begin;
    simd_.input(g_, t, block.first + begin, count,
                v + g_.points * (round_up(g_.c, simd_.lanes) * begin + 16 * group));
  }
  // The pixels of a block, where it comes next: part `panel` of them.
  Pixels pixels(const Tensors& t, const Block& block, Index panel, Index steps) const {
    const Index image = block.first / g_.tiles_an_image(), rest = block.first % g_.tiles_an_image();
    const Index tile_row = rest / g_.tiles_w, tile_column = rest % g_.tiles_w;
    const Index step = g_.m * g_.stride, last = tile_column + block.count - 1;
    const auto inside = [](Index at, Index size) { return std::clamp<Index>(at, 0, size); };
    // All columns if the block goes on in another row.
    const bool wraps = last >= g_.tiles_w;
    const Index top = inside(tile_row * step - g_.pad_top, g_.h);
    const Index bottom = inside((tile_row + last / g_.tiles_w) * step + g_.n - g_.pad_top, g_.h);
    const Index left = wraps ? 0 : inside(tile_column * step - g_.pad_left, g_.w);
    const Index right = wraps ? g_.w : inside(last * step + g_.n - g_.pad_left, g_.w);
    const Strides s = t.x_stride;
    return {t.x + image * s.n + top * s.h + left * s.w,
            bottom - top,
            (right - left) * s.w,
            s.h,
            panel,
            panels_,
            steps};
  }
  void finish_panel(const Tensors& t, const Block& block, Index panel, const float* v, float* m,
                    const Block* next = nullptr) const {
    const Index k = panel * simd_.panel;
    const bool half = g_.k - k <= simd_.panel / 2;
    const float* const packed = weights().packed.data() + panel * panel_floats_;
    // The weights after `from`, as many as `products` products of these channels take time for.
    const auto ahead = [&](const float* from, Index floats, Index channels, Index products) {
      const Index times = (channels + g_.run - 1) / g_.run * block.groups * products * Ahead::line;
      return streams_ ? Ahead{from, (floats + times - 1) / times} : Ahead{};
    };
    if (few_) {
      simd_.multiply_few(g_, block, packed, v, m, half);
    } else if (g_.slice > 0) {
      float* const u = m + m_floats_;
      const Index step = u_stride(g_, simd_.panel);
      for (Index c = 0; c < g_.c; c += g_.slice) {
        const Index end = std::min(c + g_.slice, g_.c);
        for (Index row = 0; row < g_.n; ++row) {
          simd_.filter(row, packed + c * 9 * simd_.panel, end - c, u, step);
          // A row's share of the next slice.
          const Index share = (end - c) * 9 * simd_.panel / g_.n;
          const float* const after = packed + end * 9 * simd_.panel + row * share;
          simd_.multiply(g_, block,
                         {u,
                          step,
                          c,
                          end,
                          row * g_.n,
                          (row + 1) * g_.n,
                          ahead(after, share, end - c, g_.n),
                          {}},
                         v, m, half);
        }
      }
    } else {
      const Index step = g_.c * simd_.panel;
      simd_.multiply(g_, block,
                     {packed, step, 0, g_.c, 0, g_.points, ahead(packed + step, step, g_.c, 1),
                      next ? pixels(t, *next, panel, block.groups * g_.points) : Pixels()},
                     v, m, half);
    }
    simd_.output(g_, t, block, m, k);
  }
  // What follows bias and clamp of a block's results of some panels, a row of tiles at a time.
  void finish_block(const Tensors& t, const Block& block, Index first_panel, Index panels) const {
    if (g_.post.none()) return;
    const Index k = first_panel * simd_.panel;
    const Index shrink = g_.pool ? 2 : 1, size = g_.m / shrink;
    const Index filters = std::min(panels * simd_.panel, g_.k - k), end = block.first + block.count;
    const Strides& s = t.y_stride;
    for (Index tile = block.first, tiles = 0; tile < end; tile += tiles) {
      const Place at = place_of(g_, tile);
      const Index row = at.row / shrink, column = at.column / shrink;
      tiles = std::min(end - tile, g_.tiles_w - at.column / g_.m);
      finish_rows(g_.post, {t.y + at.image * s.n + row * s.h + column * s.w + k,
                            std::min(size, g_.out_h - row), s.h,
                            std::min(tiles * size, g_.out_w - column), s.w, filters});
    }
  }

  // A task is a block from x to y.
  void run_blocks(const Tensors& t, const Cut& plan, float* workspace, Threads& threads) const {
    threads.for_each(plan.blocks, [&](Index task, int slot) {
      const Block block = plan.block(task, group_);
      float* const v = workspace + slot * (v_floats_ + m_floats_ + u_floats_);
      for (Index group = 0; group < block.groups; ++group) transform_group(t, block, group, v);
      const Block next = plan.block(std::min(task + 1, plan.blocks - 1), group_);
      for (Index panel = 0; panel < panels_; ++panel)
        finish_panel(t, block, panel, v, v + v_floats_, far_ ? &next : nullptr);
      finish_block(t, block, 0, panels_);
    });
  }

  // Few tiles: threads share the transformed input and divide the filters.
  void run_shared(const Tensors& t, const Cut& plan, float* workspace, Threads& threads) const {
    const Index most = (plan.tiles + plan.blocks - 1) / plan.blocks;  // tiles of a block
    const Index groups = (most + group_ - 1) / group_, v = v_floats(most);
    threads.for_each(plan.blocks * groups, [&](Index task, int) {
      const Block block = plan.block(task / groups, group_);
      if (task % groups < block.groups)
        transform_group(t, block, task % groups, workspace + task / groups * v);
    });
    float* const products = workspace + shared_v_floats_;
    threads.for_each(chunks() * plan.blocks, [&](Index task, int slot) {
      const Block block = plan.block(task % plan.blocks, group_);
      const Index first = task / plan.blocks * tile_.b;
      for (Index panel = first; panel < std::min(first + tile_.b, panels_); ++panel)
        finish_panel(t, block, panel, workspace + task % plan.blocks * v,
                     products + slot * (m_floats_ + u_floats_));
      finish_block(t, block, first, tile_.b);
    });
  }

  Geometry g_;
  Simd simd_;
  Tile tile_;
  Cut cut_;  // of a run of all images
  Index threads_;
  bool few_ = false;      // U is made in registers
  bool streams_ = false;  // the weights do not stay in L2 beside V
  bool far_ = false;      // the input does not
  Index group_ = 0;       // tiles of a group, at most
  Index panels_ = 0, most_ = 0;
  Index panel_floats_ = 0, v_floats_ = 0, shared_v_floats_ = 0, m_floats_ = 0, u_floats_ = 0;
  Buffer<float> zeros_;
};

}  // namespace

std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile, const Machine& machine,
                                  Index m) {
  return std::make_unique<WinogradPrepared>(stage, tile, machine, m);
}

}  // namespace convoy::cpu::winograd
