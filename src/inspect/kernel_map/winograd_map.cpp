// The map of `winograd4` and `winograd2`: tiles and blocks by winograd.hpp; the factors of the
// transforms by running the kernel's own transforms on inputs that are 1 at one place.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "convoy/error.hpp"
#include "core/buffer.hpp"
#include "cpu/winograd/winograd.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"

namespace convoy::inspect {
namespace {

namespace winograd = cpu::winograd;
using winograd::Geometry;

class WinogradMap final : public KernelMap {
 public:
  WinogradMap(const Stage& stage, const std::string& kernel, const Tile& tile,
              const Machine& machine)
      : KernelMap(stage, kernel, tile.name, machine.name),
        g_(winograd::geometry(stage, kernel == "winograd4" ? 4 : 2)),
        simd_(winograd::simd(g_.m, g_.stride)) {
    tiles_ = stage.n * g_.tiles_an_image();
    panels_ = math::ceil_div(g_.k, simd_.panel);
    const Index most = std::min<Index>(tile.a, tiles_);
    group_ = winograd::makes_few(g_, simd_, most) ? simd_.few : winograd::group_tiles(g_, machine);
    cut_ = winograd::cut_by(tile, tiles_, most, panels_, machine.threads);
    shared_ = tile.b;
    threads_ = machine.threads;
  }

  std::vector<MapFact> facts() const override {
    std::vector<MapFact> all;
    const auto add = [&](const char* name, std::string value, std::string note) {
      all.push_back({name, std::move(value), std::move(note)});
    };
    add("tile", fmt::format("{0} x {0} outputs", g_.m),
        fmt::format("of {0} x {0} inputs, {1} apart", g_.n, g_.m * g_.stride));
    add("products", fmt::format("{}", g_.points),
        fmt::format("a tile and channel pair, xi = {}*i + j, for the {} of the definition", g_.n,
                    9 * g_.m * g_.m));
    add("tiles", fmt::format("{} x {} x {}", stage().n, g_.tiles_h, g_.tiles_w),
        fmt::format("images x rows x columns: {}", tiles_));
    add("blocks", fmt::format("{}", cut_.blocks),
        fmt::format("of up to {} tiles, in groups of up to {}; {}",
                    math::ceil_div(tiles_, cut_.blocks), group_,
                    shared_ > 0 ? "threads share the transformed input and divide the filters"
                                : "a task is a block, from x to y"));
    add("panels", fmt::format("{}", panels_),
        fmt::format("of {} filters: two vectors of {}", simd_.panel, simd_.lanes));
    add("sums", fmt::format("runs of {} channels", g_.run), "each summed from zero, then added up");
    return all;
  }
  std::vector<TilePlace> first_tiles(int count) const override {
    std::vector<TilePlace> all;
    for (Index i = 0; i < std::min<Index>(count, cut_.blocks); ++i) {
      const winograd::Block block = cut_.block(i, group_);
      all.push_back({block.first, 0, i, 0});
    }
    return all;
  }
  std::string order() const override {
    return "blocks of tiles in order, columns fastest, then rows, then images; threads take the "
           "next block when they are done";
  }

  std::optional<WinogradPlace> winograd(const OutputIndex& output,
                                        const TapIndex* tap) const override {
    expect_output(stage(), output);
    WinogradPlace at;
    at.tile = (output.n * g_.tiles_h + output.p / g_.m) * g_.tiles_w + output.q / g_.m;
    const winograd::Place place = winograd::place_of(g_, at.tile);
    at.row = place.row, at.column = place.column;
    at.i = static_cast<int>(output.p - place.row), at.j = static_cast<int>(output.q - place.column);
    // The first block whose end lies behind the tile.
    at.block = std::min(at.tile * cut_.blocks / tiles_, cut_.blocks - 1);
    while (cut_.block(at.block, group_).first > at.tile) --at.block;
    while (end_of(at.block) <= at.tile) ++at.block;
    const winograd::Block block = cut_.block(at.block, group_);
    const Index in_block = at.tile - block.first;
    while (block.begin(at.group + 1) <= in_block) ++at.group;
    at.in_group = in_block - block.begin(at.group);
    at.panel = output.k / simd_.panel, at.in_panel = output.k % simd_.panel;
    const Index count = block.begin(at.group + 1) - block.begin(at.group);

    const std::vector<double> of_output = factors_of_output(at.i, at.j);
    std::vector<double> of_input(static_cast<std::size_t>(g_.points)), of_weight(of_input);
    Index channel = 0;
    if (tap) {
      channel = tap->c;
      of_input = factors_of_input(static_cast<int>(at.i * g_.stride + tap->r),
                                  static_cast<int>(at.j * g_.stride + tap->s));
      of_weight = factors_of_weight(tap->r, tap->s);
    }
    for (Index xi = 0; xi < g_.points; ++xi) {
      const auto i = static_cast<std::size_t>(xi);
      at.products.push_back({static_cast<int>(xi), static_cast<int>(xi / g_.n),
                             static_cast<int>(xi % g_.n), of_output[i], of_input[i], of_weight[i],
                             g_.filter(xi),
                             xi * winograd::v_stride(g_, simd_.lanes, count) +
                                 channel / simd_.lanes * count * simd_.lanes +
                                 at.in_group * simd_.lanes + channel % simd_.lanes,
                             xi * winograd::m_stride(block.count, simd_.panel) +
                                 in_block * simd_.panel + at.in_panel});
    }
    return at;
  }

 private:
  Index end_of(Index block) const {
    const winograd::Block b = cut_.block(block, group_);
    return b.first + b.count;
  }

  /// One tile, one vector of channels and filters, without padding and epilogue.
  Geometry one_tile() const {
    const Index side = (g_.m - 1) * g_.stride + 3;
    Stage s{.n = 1, .h = side, .w = side, .c = simd_.lanes, .k = simd_.panel, .r = 3, .s = 3};
    s.stride = Extent(g_.stride);
    return winograd::geometry(s, g_.m);
  }
  /// What 1 in each product gives output (i, j).
  std::vector<double> factors_of_output(int i, int j) const {
    const Geometry g = one_tile();
    const Index floats = g.points * winograd::m_stride(1, simd_.panel);
    Buffer<float> m(static_cast<std::size_t>(floats));
    std::vector<float> y(static_cast<std::size_t>(g.m * g.m * simd_.panel));
    winograd::Tensors t;
    t.y = y.data();
    t.y_stride = {0, g.m * g.m * simd_.panel, g.m * simd_.panel, simd_.panel, 1};
    std::vector<double> factors;
    factors.reserve(static_cast<std::size_t>(g.points));
    for (Index xi = 0; xi < g.points; ++xi) {
      std::fill_n(m.data(), floats, 0.0F);
      m.data()[xi * winograd::m_stride(1, simd_.panel)] = 1;
      simd_.output(g, t, {0, 1, 1}, m.data(), 0);
      factors.push_back(
          static_cast<double>(y[static_cast<std::size_t>((i * g.m + j) * simd_.panel)]));
    }
    return factors;
  }
  /// What input (i, j) of the patch gives each V.
  std::vector<double> factors_of_input(int i, int j) const {
    const Geometry g = one_tile();
    const Index side = g.h;
    std::vector<float> x(static_cast<std::size_t>(side * side * simd_.lanes));
    Buffer<float> v(static_cast<std::size_t>(g.points * winograd::v_stride(g, simd_.lanes, 1)));
    Buffer<float> zeros(static_cast<std::size_t>(simd_.lanes));
    std::fill_n(zeros.data(), simd_.lanes, 0.0F);
    x[static_cast<std::size_t>((i * side + j) * simd_.lanes)] = 1;
    winograd::Tensors t;
    t.x = x.data(), t.zeros = zeros.data();
    t.x_stride = {0, side * side * simd_.lanes, side * simd_.lanes, simd_.lanes, 1};
    simd_.input(g, t, 0, 1, v.data());
    std::vector<double> factors;
    factors.reserve(static_cast<std::size_t>(g.points));
    for (Index xi = 0; xi < g.points; ++xi)
      factors.push_back(static_cast<double>(v.data()[xi * winograd::v_stride(g, simd_.lanes, 1)]));
    return factors;
  }

  /// What weight (r, s) gives each U.
  std::vector<double> factors_of_weight(Index r, Index s) const {
    const Geometry g = one_tile();
    std::vector<float> w(static_cast<std::size_t>(g.k * 9 * g.c)),
        u(static_cast<std::size_t>(g.filters * g.c * simd_.panel));
    w[static_cast<std::size_t>((r * 3 + s) * g.c)] = 1;
    winograd::pack(g, simd_.panel, w.data(), u.data());
    std::vector<double> factors;
    factors.reserve(static_cast<std::size_t>(g.points));
    for (Index xi = 0; xi < g.points; ++xi)
      factors.push_back(
          static_cast<double>(u[static_cast<std::size_t>(g.filter(xi) * g.c * simd_.panel)]));
    return factors;
  }

  Geometry g_;
  winograd::Simd simd_;
  winograd::Cut cut_;
  Index tiles_ = 0, panels_ = 0, group_ = 0, threads_ = 1;
  int shared_ = 0;
};

}  // namespace

std::unique_ptr<KernelMap> map_winograd(const Stage& stage, const Machine& machine,
                                        const std::string& kernel, const std::string& tile) {
  PlanOptions options;
  options.kernel = kernel;
  options.tile = tile;
  options.threads = machine.threads;
  options.use_tuning = false;
  // Refuses with every reason.
  const Selection selection = select(Chain(stage), machine, options, nullptr);
  return std::make_unique<WinogradMap>(stage, kernel, selection.tile.tile,
                                       running(machine, selection));
}

}  // namespace convoy::inspect
