#include "gpu_limits_families.hpp"

#include <algorithm>
#include <functional>

#include "cuda/any/depthwise_thread.hpp"
#include "cuda/any/few_filters_layout.hpp"
#include "cuda/any/fma_thread.hpp"
#include "cuda/known_gpus.hpp"
#include "cuda/sm80/window_iterators.hpp"
#include "cuda/sm80/window_thread.hpp"
#include "cuda/sm90/few_thread.hpp"
#include "cuda/sm90/first_layout.hpp"
#include "cuda/sm90/halo_thread.hpp"
#include "cuda/sm90/pair_tile.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "cuda/wrap/winograd_thread.hpp"
#include "verify/random.hpp"

namespace convoy::cuda {
namespace {

using verify::Random;

Machine machine() {
  return machine_of(h200());
}

void check_halo(const Stage& stage, Random& random) {
  using namespace sm90;
  const Shapes shapes = shapes_of(stage);
  const std::vector<HaloTile> tiles = halo_tiles(stage, h200());
  ASSERT_FALSE(tiles.empty());
  for (std::size_t i = 0; i < tiles.size(); i += 1 + tiles.size() / 8) {
    const HaloTile& tile = tiles[i];
    SCOPED_TRACE(tile.name());
    const HaloLayout l = halo_layout(stage, tile, h200());
    const Wide turns = stage.act.is_neuron() ? stage.t : 1;
    const Wide places = Wide{l.k_blocks} * l.tiles_x * l.tiles_y * l.tiles_n;
    const int numbered = halo_tiles_of(stage, tile, l, stage.n);
    EXPECT_GE(numbered, places);
    EXPECT_INT(places * turns + Wide{2} * l.grid * 2 * turns);
    const Divisor by_k(l.k_blocks), by_x = halo_across(l), by_y(l.tiles_y);
    for (const Index number : some(static_cast<Index>(places), random)) {
      const Place at = halo_place(l, by_k, by_x, by_y, static_cast<int>(number));
      EXPECT_EQ(at.k, Wide{number % l.k_blocks} * l.cta_channels);
      const Wide rest = number / l.k_blocks;
      EXPECT_EQ(at.x, rest % l.tiles_x * l.cta_w);
      EXPECT_EQ(at.y, rest / l.tiles_x % l.tiles_y * l.cta_h);
      EXPECT_EQ(at.n, rest / l.tiles_x / l.tiles_y * l.cta_n);
      // What TMA is asked for, with the tile's last pixels and images and the last step.
      const Wide step = turns - 1;
      EXPECT_INT((Wide{at.x} + 2 * l.cta_w) * l.step_w + l.first_w + 256 * 8);
      EXPECT_INT((Wide{at.y} + 2 * l.cta_h) * l.step_h + l.first_h + 256 * 8);
      EXPECT_INT(Wide{at.n} + l.cta_n + step * stage.n);
      if (tile.inner == Inner::line) {
        EXPECT_INT(Wide{at.x} + 2 * l.cta_w + step * stage.n * stage.h * stage.w);
      }
      EXPECT_INT(Wide{at.k} + 2 * l.cta_channels);
    }
    if (!stage.act.is_neuron()) continue;
    // A thread's membranes: [n,P,Q,K], as Membranes finds them (halo_neuron_membranes.cuh).
    const Wide line = tile.inner == Inner::line;
    const Wide cells_n = line ? 1 : stage.n, cells_y = line ? 1 : shapes.p,
               cells_x = line ? stage.n * stage.h * stage.w : shapes.q;
    EXPECT_INT(((cells_n - 1) * cells_y + cells_y - 1) * cells_x * stage.k + cells_x * stage.k);
    EXPECT_INT(cells_x * cells_y * stage.k);  // to the image beside
    const int first = membrane_at(static_cast<int>(cells_n - 1), static_cast<int>(cells_y - 1),
                                  static_cast<int>(cells_x - 1), static_cast<int>(cells_y),
                                  static_cast<int>(cells_x), static_cast<int>(stage.k),
                                  static_cast<int>(stage.k - 1));
    EXPECT_EQ(first, cells_n * cells_y * cells_x * stage.k - 1);
  }
}

void expect_legal_map(const TensorMapArgs& map) {
  for (int axis = 0; axis < map.rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    EXPECT_LE(map.size[a], std::uint64_t{1} << 31) << "TMA's coordinates have 32 bits";
    if (axis > 0) {
      EXPECT_LT(map.stride[a], std::uint64_t{1} << 40);
    }
  }
}
void check_halo_maps(const Stage& stage, Random& random) {
  check_halo(stage, random);
  for (const sm90::HaloTile& tile : {sm90::halo_tiles(stage, h200()).front()}) {
    const sm90::HaloLayout l = sm90::halo_layout(stage, tile, h200());
    expect_legal_map(sm90::halo_w_map(stage, tile, l));
    expect_legal_map(sm90::halo_y_map(stage, tile, stage.k));
    Stage of_x = stage;
    if (tile.time_steps == 1) of_x.n *= sm90::halo_inputs(stage);
    expect_legal_map(sm90::halo_x_map(of_x, tile, l, stage.c));
  }
}

// --------------------------------------------------------------------------------- few and first

void check_few(const Stage& stage, Random& random) {
  using namespace sm90;
  const FewLayout l = few_layout(stage, h200());
  const Divisor columns(l.tiles_x), rows(l.tiles_y);
  const Index tiles = few_tiles(stage, l);
  EXPECT_INT(Wide{tiles} + l.grid);
  for (const Index t : some(tiles, random)) {
    const Place at = few_place(l, columns, rows, static_cast<int>(t));
    if (l.flat) {
      EXPECT_EQ(at.x, Wide{t} * l.out_w);
      EXPECT_INT(Wide{t} * l.out_w + l.out_w);
      continue;
    }
    EXPECT_EQ(at.x, Wide{t % l.tiles_x} * l.out_w);
    EXPECT_EQ(at.y, Wide{t / l.tiles_x % l.tiles_y} * l.out_h);
    EXPECT_EQ(at.n, Wide{t / l.tiles_x / l.tiles_y});
    EXPECT_INT(Wide{at.x} + l.box_w);
    EXPECT_INT(Wide{at.y} + l.box_h);
  }
  expect_legal_map(few_x_map(stage, l, stage.c));
}

void check_first(const Stage& stage, Random& random) {
  using namespace sm90;
  const FirstLayout l = first_layout(stage, h200());
  const Wide runs = Wide{stage.n} * l.runs_x * l.runs_y;
  EXPECT_INT(runs + 4 * l.grid);
  const Divisor columns(l.runs_x), rows(l.runs_y);
  for (const Index t : some(static_cast<Index>(runs), random)) {
    const Place at = tile_place(static_cast<int>(t), columns, rows);
    EXPECT_EQ(at.x, Wide{t % l.runs_x});
    EXPECT_EQ(at.y, Wide{t / l.runs_x % l.runs_y});
    EXPECT_EQ(at.n, Wide{t / l.runs_x / l.runs_y});
    const Wide x = Wide{at.x} * l.run_pitch + Wide{l.run} * l.out_w;
    EXPECT_INT((x * 2 * stage.stride.w + 256) * stage.c);  // raw_column
  }
  expect_legal_map(first_y_map(stage, l, stage.k, false));
  if (l.raw) expect_legal_map(first_x_map(stage, l));
}

// -------------------------------------------------------------------------------------- window

void check_window(const Stage& stage, Random& random) {
  using namespace sm80;
  const Shapes shapes = shapes_of(stage);
  for (const WindowTile& tile : window_tiles(stage, machine())) {
    SCOPED_TRACE(tile.name());
    WindowSizes at = window_sizes(stage, tile);
    set_machine(at, stage, tile, machine());
    const int window = at.g.window;
    const Wide m = Wide{stage.n} * shapes.out_h * shapes.out_w * window * window;
    EXPECT_EQ(at.g.m, m);
    EXPECT_INT(m + tile.m);
    EXPECT_INT(Wide{at.m_tiles} * at.n_tiles);
    EXPECT_INT(Wide{at.chunks} * at.g.r * at.g.s);
    if (tile.box) {
      EXPECT_INT(Wide{at.box.count} * at.n_tiles);
      EXPECT_EQ(at.box.count, Wide{(stage.n - 1) / at.box.images + 1} * at.box.of_image.d);
      EXPECT_INT((Wide{stage.n} + at.box.images) * shapes.p * at.box.columns);
    }
    const Index bytes = static_cast<Index>(size_of(stage.dtype));
    at.g.channel_bytes = static_cast<int>(at.groups.channels * bytes);
    EXPECT_INT(Wide{at.groups.channels} * bytes + chunk_bytes);
    const Strides x = dense_x(stage, stage.n);
    at.g.set_distances(x.n * bytes, x.h * bytes, x.w * bytes);
    for (const Index row : some(static_cast<Index>(m), random)) {
      const math::ConvPixel<int> pixel = at.g.pixel_of(static_cast<int>(row));
      const Wide number = row / (window * window), inside = row % (window * window);
      const Wide q = number % shapes.out_w * window + inside % window,
                 p = number / shapes.out_w % shapes.out_h * window + inside / window,
                 n = number / shapes.out_w / shapes.out_h;
      EXPECT_TRUE(pixel.n == n && pixel.p == p && pixel.q == q) << row;
      EXPECT_EQ(at.g.row_of(pixel), row);
      const Optimized<1> first(at.g, static_cast<int>(row), 1, 0);
      const Wide h = p * stage.stride.h - stage.pad.top, w = q * stage.stride.w - stage.pad.left;
      EXPECT_EQ(Wide{first.get()}, ((n * stage.h + h) * stage.w + w) * stage.c * bytes);
    }
    if (!tile.box)
      for (const Index cta : some(Index{at.m_tiles} * at.n_tiles, random)) {
        const CtaPlace place = at.order.place(static_cast<int>(cta));
        EXPECT_TRUE(place.m >= 0 && place.m < at.m_tiles && place.n >= 0 && place.n < at.n_tiles);
        EXPECT_EQ(at.order.number(place, at.m_tiles), cta);
        EXPECT_INT(Wide{place.m} * tile.m + tile.m);
      }
  }
}

// -------------------------------------------------------------------- families of every GPU

void check_fma(const Stage& stage, Random& random) {
  const Shapes shapes = shapes_of(stage);
  for (const FmaTile& tile : fma_tiles(stage)) {
    const FmaSizes at = fma_sizes(stage, tile);
    const Wide window = at.rows.window;
    const Wide m = Wide{stage.n} * shapes.out_h * shapes.out_w * window * window;
    EXPECT_EQ(at.rows.m, m);
    EXPECT_INT(m + tile.m);
    EXPECT_INT(Wide{at.m_tiles} * at.n_tiles);
    EXPECT_INT(Wide{at.steps} * fma_depth + fma_depth);
    for (const Index block : some(Index{at.m_tiles} * at.n_tiles, random)) {
      const FmaCta cta(at, tile.m, tile.n, static_cast<int>(block));
      EXPECT_EQ(cta.m, Wide{block / at.n_tiles} * tile.m);
    }
    for (const Index row : some(static_cast<Index>(m), random)) {
      const math::ConvPixel<int> pixel = at.rows.pixel_of(static_cast<int>(row));
      EXPECT_EQ(pixel.n, Wide{row} / (window * window) / shapes.out_w / shapes.out_h);
      EXPECT_EQ(at.rows.row_of(pixel), row);
      FmaRow begin{};
      begin.begin_at(pixel, math::conv_rows<int>(stage), math::conv_columns<int>(stage),
                     dense_x(stage, stage.n));
      EXPECT_EQ(begin.h, Wide{pixel.p} * stage.stride.h - stage.pad.top);
      EXPECT_EQ(begin.w, Wide{pixel.q} * stage.stride.w - stage.pad.left);
      const Strides x = dense_x(stage, stage.n);
      EXPECT_EQ(Wide{begin.at}, Wide{pixel.n} * x.n + Wide{begin.h} * x.h + Wide{begin.w} * x.w);
    }
  }
}

void check_few_filters(const Stage& stage, Random& random) {
  const FewFiltersLayout l = few_filters_layout(stage);
  EXPECT_LT(Wide{l.all_strips()} + 512, Wide{1} << 32);
  for (const Index strip : some(l.all_strips(), random)) {
    const FewFiltersPlace at = few_filters_place(
        static_cast<unsigned>(strip), static_cast<unsigned>(l.p), static_cast<unsigned>(l.strips));
    const Wide column = strip / l.p;
    EXPECT_EQ(at.n, column / l.strips);
    EXPECT_EQ(at.p, Wide{strip % l.p});
    EXPECT_EQ(at.q, column % l.strips * few_filters_pixels);
    EXPECT_INT((Wide{at.q} + few_filters_pixels) * stage.stride.w + Wide{stage.s} * stage.dil.w);
  }
  EXPECT_INT(Wide{l.channels.blocks} * l.channels.of_block() + 128);
}

void check_depthwise(const Stage& stage, Random& random) {
  const int count = depthwise_channels(stage);
  for (const DepthwiseTile& tile : depthwise_tiles(stage)) {
    const DepthwiseLayout l = depthwise_layout(stage, tile);
    const DepthwiseWalk walk(l);
    const Wide of_image = Wide{l.channel_blocks} * l.column_blocks * l.row_blocks;
    EXPECT_INT(of_image * stage.n);
    for (const Index block : some(static_cast<Index>(of_image * stage.n), random)) {
      const int thread = l.lanes * l.across * l.down - 1;
      const DepthwisePlace at =
          depthwise_place(walk, thread, static_cast<int>(block), count, tile.rows, tile.columns);
      EXPECT_EQ(at.n, Wide{block} / of_image);
      EXPECT_EQ(at.channel, (Wide{block % l.channel_blocks} * l.lanes + l.lanes - 1) * count);
      const Wide rest = block / l.channel_blocks;
      EXPECT_EQ(at.q, (rest % l.column_blocks * l.across + l.across - 1) * tile.columns);
      EXPECT_EQ(at.p, (rest / l.column_blocks % l.row_blocks * l.down + l.down - 1) * tile.rows);
      EXPECT_INT((Wide{at.p} + tile.rows) * stage.stride.h + Wide{stage.r} * stage.dil.h);
      EXPECT_INT((Wide{at.q} + tile.columns) * stage.stride.w + Wide{stage.s} * stage.dil.w);
    }
  }
  EXPECT_INT(Wide{stage.r} * stage.s * stage.c - 1);
}

void check_winograd(const Stage& stage, Random& random) {
  const WinogradTiles tiles = winograd_tiles(stage);
  const Wide all = Wide{stage.n} * tiles.down * tiles.across;
  const Wide threads = all * std::max(stage.c, stage.k);
  EXPECT_INT(threads / winograd_threads + 1);
  for (const Index number : some(static_cast<Index>(all), random)) {
    const WinogradTile tile(tiles, number);
    EXPECT_EQ(Wide{tile.image}, Wide{number} / tiles.down / tiles.across);
    EXPECT_EQ(tile.p, Wide{number} / tiles.across % tiles.down * 4);
    EXPECT_EQ(tile.q, Wide{number} % tiles.across * 4);
  }
}

void check_fire(const Stage& stage, Random&) {
  const Shapes shapes = shapes_of(stage);
  // Parts are at most as many as membranes, and threads of the last CTA have a number too.
  EXPECT_INT(Wide{stage.n} * shapes.p * shapes.q * stage.k + 128);
  EXPECT_INT(Wide{stage.n} * stage.t);
}

}  // namespace

std::vector<Index> some(Index count, verify::Random& random) {
  std::vector<Index> numbers{0, count / 2, count - 1};
  for (int i = 0; i < 20; ++i)
    numbers.push_back(
        std::min(count - 1, static_cast<Index>(random.uniform() * static_cast<double>(count))));
  return numbers;
}

std::vector<Family> families() {
  const auto of_gpu = [](auto refusals) {
    return [refusals](const Stage& stage) { return refusals(stage, h200()); };
  };
  return {
      {"halo",
       [](const Stage& stage) {
         auto why = sm90::halo_refusals(stage, h200());
         if (why.empty() && !sm90::halo_serves(stage, h200())) why.emplace_back("no tile");
         return why;
       },
       check_halo_maps},
      {"few", of_gpu(sm90::few_refusals), check_few},
      {"first", of_gpu(sm90::first_refusals), check_first},
      {"window", [](const Stage& stage) { return sm80::window_refusals(stage, machine()); },
       check_window},
      {"fma", fma_refusals, check_fma},
      {"few_filters", few_filters_refusals, check_few_filters},
      {"depthwise", depthwise_refusals, check_depthwise},
      {"winograd", winograd_refusals, check_winograd},
      {"fire",
       [](const Stage& stage) {
         Reasons why = unserved(stage, served_by_fired(serves_everything), DeviceKind::cuda);
         refuse_fire(stage, why);
         return why;
       },
       check_fire},
  };
}

}  // namespace convoy::cuda
