// Winograd's driver: what fits, how weights are packed, how blocks of tiles are walked.
#include "cpu/winograd.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/buffer.hpp"

namespace convoy::cpu::winograd {

void fill_multiply(Simd& simd);
void fill_transforms(Simd& simd, Index m, Index stride);
void fill_filter(Simd& simd);

Simd simd(Index m, Index stride) {
  Simd simd;
  fill_multiply(simd);
  fill_transforms(simd, m, stride);
  if (m == 4) fill_filter(simd);
  return simd;
}

Geometry geometry(const Stage& stage, Index m) {
  const Shapes shapes = shapes_of(stage);
  Geometry g;
  g.h = stage.h;
  g.w = stage.w;
  g.c = stage.c;
  g.k = stage.k;
  g.p = shapes.p;
  g.q = shapes.q;
  g.out_h = shapes.out_h;
  g.out_w = shapes.out_w;
  g.pad_top = stage.pad.top;
  g.pad_left = stage.pad.left;
  g.m = m;
  g.tiles_h = (g.p + m - 1) / m;
  g.tiles_w = (g.q + m - 1) / m;
  g.stride = stage.stride.h;
  g.n = g.stride == 2 ? 5 : m + 2;
  g.points = g.n * g.n;
  g.filters = g.stride == 2 ? 16 : g.points;
  g.run = m == 2 ? 64 : g.c < 128 ? 16 : 32;
  // U of 36 MiB and more. What it loses by being made in fp32 does not show beside long sums.
  if (m == 4 && g.c >= 256 && g.c * g.k >= 512 * 512) g.slice = 4 * g.run;
  g.act = stage.act;
  g.pool = stage.pool.has_value();
  return g;
}

Index group_tiles(const Geometry& g, const Machine& machine) {
  if (machine.isa == "neon") return 12;
  if (machine.isa != "avx512") return 6;
  // Seven leave room for the totals of short runs of channels. Long runs do without, and with
  // twelve tiles have fewer loads: as long as what is loaded stays in the first-level cache.
  constexpr Index tiles = 12;
  const Index panel = 2 * machine.vector_floats;
  const auto loaded = static_cast<std::size_t>(g.c * (tiles + panel)) * sizeof(float);
  return g.m == 2 && loaded <= machine.l1_bytes * 3 / 4 ? tiles : 7;
}

std::vector<std::string> refusals(const Stage& stage, const Machine& machine, Index m) {
  std::vector<std::string> reasons;
  const auto refuse = [&](bool when, std::string reason) {
    if (when) reasons.push_back(std::move(reason));
  };
  refuse(stage.r != 3 || stage.s != 3,
         fmt::format("the filter is {}x{}, expected 3x3", stage.r, stage.s));
  refuse(stage.stride != Extent(1) && (m != 2 || stage.stride != Extent(2)),
         fmt::format("the stride is {}x{}, expected 1{}", stage.stride.h, stage.stride.w,
                     m == 2 ? " or 2" : ""));
  refuse(stage.dil != Extent(1),
         fmt::format("the dilation is {}x{}, expected 1", stage.dil.h, stage.dil.w));
  refuse(stage.groups != 1, fmt::format("groups is {}, expected 1", stage.groups));
  refuse(stage.dtype != DType::f32,
         fmt::format("x is {}, expected f32", convoy::name(stage.dtype)));
  refuse(stage.output_dtype() != DType::f32,
         fmt::format("y is {}, expected f32", convoy::name(stage.output_dtype())));
  refuse(stage.layout != Layout::nhwc, "the layout is nchw, expected nhwc");
  refuse(stage.norm, "norm is not supported");
  refuse(stage.act.is_neuron(), "neurons are not supported");
  refuse(stage.keep.any(), "keep is not supported");
  if (stage.pool) {
    const Pool& pool = *stage.pool;
    refuse(pool.window != Extent(2) || pool.stride != Extent(2) || pool.pad != Extent(0) ||
               pool.dil != Extent(1),
           "the pool is not max 2x2 with stride 2, no padding and no dilation");
  }
  // Measured against plain fp32 on thousands of drawn stages: with fewer channels, or an image of
  // mostly padding, too few roundings average out and the error exceeds twice that of plain fp32.
  const bool small = stage.h < 8 || stage.w < 8;
  const Index least = m == 2 ? 4 : (small ? 96 : 64);
  refuse(stage.c < least,
         fmt::format("c is {}, expected at least {}: with fewer the error of F({}x{}) is too large",
                     stage.c, least, m, m));
  refuse(
      stage.h < 4 || stage.w < 4,
      fmt::format("the image is {}x{}, expected at least 4x4: with less the error of F({}x{}) is "
                  "too large",
                  stage.h, stage.w, m, m));
  // There a product is rounded before it is added, which F(4x4) has no margin for.
  refuse(
      m == 4 && machine.isa == "scalar",
      "this CPU has no vectors with fused multiply-add, which F(4x4) needs: without, its error is "
      "too large");
  return reasons;
}

namespace {

// 1-D filter transform, rows in the order of the points; for 2x2 times 2.
constexpr double a = point_a, b = point_b;
constexpr double filter4[6][3] = {{1, 0, 0},    {1, a, a* a},  {1, -a, a* a},
                                  {1, b, b* b}, {1, -b, b* b}, {0, 0, 1}};
constexpr double filter2[4][3] = {{2, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 2}};
constexpr double filter2_stride2[4][3] = {{1, 0, 0}, {1, 0, 1}, {0, 0, 1}, {0, 1, 0}};

// U of one filter and some of its channels: w is [3][3] with `step` floats between taps.
constexpr Index side_by_side = 8;
template <int n>
using Transformed = double[n][n][side_by_side];

template <int n>
void transform_filter(const double (&g)[n][3], const float* w, Index step, Index channels,
                      Transformed<n>& u) {
  double taps[3][3][side_by_side] = {};
  for (int tap = 0; tap < 9; ++tap)
    for (Index i = 0; i < channels; ++i)
      taps[tap / 3][tap % 3][i] = static_cast<double>(w[tap * step + i]);
  const auto add = [](double(&to)[side_by_side], double factor, const double(&from)[side_by_side]) {
    for (Index i = 0; i < side_by_side; ++i) to[i] += factor * from[i];
  };
  double half[n][3][side_by_side] = {};
  for (int i = 0; i < n; ++i)
    for (int s = 0; s < 3; ++s)
      for (int r = 0; r < 3; ++r)
        if (g[i][r] != 0) add(half[i][s], g[i][r], taps[r][s]);
  std::memset(u, 0, sizeof u);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int s = 0; s < 3; ++s)
        if (g[j][s] != 0) add(u[i][j], g[j][s], half[i][s]);
}

// u is [panel of filters][n][n][c][filter of the panel]. Some channels of a panel are put together
// first: u's points lie so far apart, by powers of two, that they would turn one another out of the
// caches.
template <int n>
void pack(const double (&g)[n][3], const float* w, Index k, Index c, Index panel, float* u) {
  std::vector<float> block(static_cast<std::size_t>(n * n * side_by_side * panel));
  for (Index first = 0; first < k; first += panel) {
    std::fill(block.begin(), block.end(), 0.0F);  // filters that fill the last panel are zero
    for (Index channel = 0; channel < c; channel += side_by_side) {
      const Index channels = std::min(side_by_side, c - channel);
      for (Index filter = first; filter < std::min(first + panel, k); ++filter) {
        Transformed<n> transformed;
        transform_filter(g, w + filter * 9 * c + channel, c, channels, transformed);
        float* to = block.data() + filter - first;
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < n; ++j)
            for (Index lane = 0; lane < side_by_side; ++lane, to += panel)
              *to = static_cast<float>(transformed[i][j][lane]);
      }
      for (Index point = 0; point < n * n; ++point)
        std::copy_n(block.data() + point * side_by_side * panel, channels * panel,
                    u + first * n * n * c + (point * c + channel) * panel);
    }
  }
}

// [panel of filters][c][9][filter of the panel]
void pack_plain(const float* w, Index k, Index c, Index panel, float* to) {
  for (Index first = 0; first < k; first += panel)
    for (Index channel = 0; channel < c; ++channel)
      for (Index tap = 0; tap < 9; ++tap, to += panel)
        for (Index i = 0; i < panel; ++i)
          to[i] = first + i < k ? w[((first + i) * 9 + tap) * c + channel] : 0.0F;
}

class WinogradPrepared final : public Prepared {
 public:
  WinogradPrepared(const Stage& stage, const Tile& tile, const Machine& machine, Index m)
      : g_(geometry(stage, m)), simd_(simd(m, g_.stride)), tile_(tile), threads_(machine.threads) {
    panels_ = (g_.k + simd_.panel - 1) / simd_.panel;
    panel_floats_ = (g_.slice > 0 ? 9 : g_.filters) * g_.c * simd_.panel;
    packed_ = Buffer<float>(static_cast<std::size_t>(panels_ * panel_floats_));
    weights_ = Buffer<float>(static_cast<std::size_t>(g_.k * 9 * g_.c));
    zeros_ = Buffer<float>(static_cast<std::size_t>(round_up(g_.c, simd_.lanes)));
    std::fill_n(zeros_.data(), zeros_.size(), 0.0F);
    const Index most_tiles = stage.n * g_.tiles_an_image();
    most_ = std::min<Index>(tile.a, most_tiles);
    // cut() makes more and smaller blocks than this, never larger ones.
    few_ = g_.slice > 0 && most_ <= 2 * simd_.few;
    group_ = few_ ? simd_.few : group_tiles(g_, machine);
    const Index groups = (most_ + group_ - 1) / group_;
    v_floats_ = round_up(g_.points * (round_up(g_.c, simd_.lanes) * most_ + 16 * groups), 16);
    m_floats_ = round_up(g_.points * m_stride(most_, simd_.panel), 16);
    u_floats_ = g_.slice > 0 ? round_up(g_.n * u_stride(g_, simd_.panel), 16) : 0;
    most_blocks_ = (most_tiles + most_ - 1) / most_;
    if (most_blocks_ > 1) most_blocks_ = round_up(most_blocks_, threads_);
    const Index held = static_cast<Index>(machine.l2_bytes / sizeof(float));
    streams_ = panels_ * panel_floats_ + v_floats_ > held;
    far_ = !streams_ && tile.b == 0 && stage.n * g_.h * g_.w * g_.c > held / 2;
  }

  void set_weights(const float* w) override {
    std::memcpy(weights_.data(), w, weights_.size() * sizeof(float));
    if (g_.slice > 0)
      pack_plain(w, g_.k, g_.c, simd_.panel, packed_.data());
    else if (g_.m == 4)
      pack(filter4, w, g_.k, g_.c, simd_.panel, packed_.data());
    else if (g_.stride == 2)
      pack(filter2_stride2, w, g_.k, g_.c, simd_.panel, packed_.data());
    else
      pack(filter2, w, g_.k, g_.c, simd_.panel, packed_.data());
  }

  std::size_t workspace_bytes() const override {
    const Index v = shared() ? most_blocks_ : threads_;
    return static_cast<std::size_t>(v * v_floats_ + threads_ * (m_floats_ + u_floats_)) *
           sizeof(float);
  }

  Status run(const RunArgs& args) const noexcept override {
    Tensors t;
    t.x = static_cast<const float*>(args.x);
    t.x_stride = args.x_stride;
    t.weights = weights_.data();
    t.zeros = zeros_.data();
    t.bias = args.bias;
    t.y = static_cast<float*>(args.y);
    t.y_stride = args.y_stride;
    const Cut plan = cut(args.n * g_.tiles_an_image(), most_, threads_);
    float* const v = reinterpret_cast<float*>(args.workspace);
    if (shared())
      run_shared(t, plan, v, *args.threads);
    else
      run_blocks(t, plan, v, *args.threads);
    return {};
  }

 private:
  bool shared() const { return tile_.b > 0; }

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
    const float* const packed = packed_.data() + panel * panel_floats_;
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

  // A task is a block from x to y.
  void run_blocks(const Tensors& t, const Cut& plan, float* workspace, Threads& threads) const {
    threads.for_each(plan.blocks, [&](Index task, int slot) {
      const Block block = plan.block(task, group_);
      float* const v = workspace + slot * (v_floats_ + m_floats_ + u_floats_);
      for (Index group = 0; group < block.groups; ++group) transform_group(t, block, group, v);
      const Block next = plan.block(std::min(task + 1, plan.blocks - 1), group_);
      for (Index panel = 0; panel < panels_; ++panel)
        finish_panel(t, block, panel, v, v + v_floats_, far_ ? &next : nullptr);
    });
  }

  // Few tiles: threads share the transformed input and divide the filters.
  void run_shared(const Tensors& t, const Cut& plan, float* workspace, Threads& threads) const {
    const Index groups = (most_ + group_ - 1) / group_;
    threads.for_each(plan.blocks * groups, [&](Index task, int) {
      const Block block = plan.block(task / groups, group_);
      if (task % groups < block.groups)
        transform_group(t, block, task % groups, workspace + task / groups * v_floats_);
    });
    const Index chunks = (panels_ + tile_.b - 1) / tile_.b;
    float* const products = workspace + most_blocks_ * v_floats_;
    threads.for_each(chunks * plan.blocks, [&](Index task, int slot) {
      const Block block = plan.block(task % plan.blocks, group_);
      const Index first = task / plan.blocks * tile_.b;
      for (Index panel = first; panel < std::min(first + tile_.b, panels_); ++panel)
        finish_panel(t, block, panel, workspace + task % plan.blocks * v_floats_,
                     products + slot * (m_floats_ + u_floats_));
    });
  }

  Geometry g_;
  Simd simd_;
  Tile tile_;
  Index threads_;
  bool few_ = false;      // U is made in registers
  bool streams_ = false;  // the weights do not stay in the second-level cache beside V
  bool far_ = false;      // the input does not
  Index group_ = 0;       // tiles of a group, at most
  Index panels_ = 0, most_ = 0, most_blocks_ = 0;
  Index panel_floats_ = 0, v_floats_ = 0, m_floats_ = 0, u_floats_ = 0;
  Buffer<float> packed_;  // U, or W where U is made of it in a run
  Buffer<float> weights_, zeros_;
};

}  // namespace

std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile, const Machine& machine,
                                  Index m) {
  return std::make_unique<WinogradPrepared>(stage, tile, machine, m);
}

}  // namespace convoy::cpu::winograd
