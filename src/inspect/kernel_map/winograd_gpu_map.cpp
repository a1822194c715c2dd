// The map of the GPU's `winograd4`: a pass that transforms tiles of x, `window` with the 36
// products as groups, and a pass that makes outputs. By winograd_thread.hpp of src/cuda/wrap and
// the transforms of math/winograd.hpp, which the passes are made of, and by the map of `window`.
#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "cuda/wrap/winograd_thread.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "math/divide.hpp"

namespace convoy::inspect {
namespace {

namespace f4 = math::winograd4;

/// A pass over memory: threads with neighbouring channels of a tile.
struct WinogradPass {
  int lanes = 1, of_tile = 1;  // channels of a thread; threads of a tile
  explicit WinogradPass(Index channels)
      : lanes(channels % 2 == 0 ? 2 : 1), of_tile(static_cast<int>(channels) / lanes) {}
  Index ctas(Index tiles) const {
    return math::ceil_div(tiles * of_tile, Index{cuda::winograd_threads});
  }
  /// The thread of the launch that has a channel of a tile.
  Index thread(Index tile, Index channel) const { return tile * of_tile + channel / lanes; }
};

class WinogradGpuMap final : public KernelMap {
 public:
  WinogradGpuMap(const Stage& stage, const Machine& machine, int megabytes)
      : KernelMap(stage, "winograd4", cuda::winograd_tile_name(megabytes), machine.name),
        tiles_(cuda::winograd_tiles(stage)),
        images_(cuda::winograd_images_of_chunk(stage, megabytes)),
        to_v_(stage.c),
        from_m_(stage.k),
        products_(map_window(cuda::winograd_inner(stage, images_), machine, {})) {}

  std::vector<MapFact> facts() const override {
    const Index tiles = images_ * tiles_.of_image(), floats = tiles * f4::points;
    std::vector<MapFact> all;
    const auto add = [&](const char* name, std::string value, std::string note) {
      all.push_back({name, std::move(value), std::move(note)});
    };
    add("tile", "4 x 4 outputs",
        "of 6 x 6 inputs, 4 apart: 36 products for the 144 of the definition");
    add("chunks", fmt::format("{}", math::ceil_div(stage().n, images_)),
        fmt::format("of up to {} images, {} tiles: V is {} bytes, M {}", images_, tiles,
                    4 * floats * stage().c, 4 * floats * stage().k));
    const auto pass = [&](const char* name, const WinogradPass& one, const char* does) {
      add(name, fmt::format("{} CTAs", one.ctas(tiles)),
          fmt::format("of {} threads, which {}; {} {} of a tile per thread", cuda::winograd_threads,
                      does, one.lanes, one.lanes == 1 ? "channel" : "neighbouring channels"));
    };
    pass("input pass", to_v_, "transform 6 x 6 inputs to V[tile][36][C]");
    pass("output pass", from_m_,
         stage().pool ? "transform M[tile][36][K] to 4 x 4 outputs, and pool them"
                      : "transform M[tile][36][K] to 4 x 4 outputs");
    add("products", to_text(products_->stage()),
        "the stage that window computes from V to M: a pixel is a tile, a group one of 36 "
        "products");
    for (const MapFact& fact : products_->facts())
      all.push_back({"  " + fact.name, fact.value, fact.note});
    return all;
  }
  // What is asked of CTAs, threads, slots: the products', in window.
  std::vector<TilePlace> first_tiles(int count) const override {
    return products_->first_tiles(count);
  }
  std::string order() const override { return "order of the products: " + products_->order(); }
  TilePlace tile_at(Index x, Index y) const override { return products_->tile_at(x, y); }
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override {
    ThreadStep what = products_->thread_step(tile, thread, step);
    what.role += fmt::format(" (window {}, of {})", products_->tile(), to_text(products_->stage()));
    return what;
  }
  SharedMemoryMap shared_memory() const override { return products_->shared_memory(); }
  Pipeline pipeline() const override {
    Pipeline pipe = products_->pipeline();
    pipe.notes.emplace_back("that is window's, between the two passes, which have no slots");
    return pipe;
  }

  std::optional<WinogradPlace> winograd(const OutputIndex& output,
                                        const TapIndex* tap) const override {
    expect_output(stage(), output);
    const cuda::WinogradOutputs wanted = cuda::winograd_outputs(stage());
    if (output.p >= wanted.p || output.q >= wanted.q)
      throw Error(
          fmt::format("explain: the pool takes no window of (p {}, q {}), and the kernel "
                      "does not compute it",
                      output.p, output.q));
    const Index chunk = output.n / images_, channel = tap ? tap->c : 0;
    WinogradPlace at;
    at.tile = (output.n % images_ * tiles_.down + output.p / f4::outputs) * tiles_.across +
              output.q / f4::outputs;
    const cuda::WinogradTile tile(tiles_, at.tile);
    at.row = tile.p, at.column = tile.q;
    at.i = static_cast<int>(output.p) - tile.p, at.j = static_cast<int>(output.q) - tile.q;
    at.passes = passes(output, at, chunk, channel);
    add_products(output, tap, channel, at);
    return at;
  }

 private:
  std::vector<MapFact> passes(const OutputIndex& output, const WinogradPlace& at, Index chunk,
                              Index channel) const {
    std::vector<MapFact> all;
    const auto add = [&](const char* name, std::string value, std::string note) {
      all.push_back({name, std::move(value), std::move(note)});
    };
    add("chunk", fmt::format("{}", chunk),
        fmt::format("its image {}; tiles are counted from the chunk's first",
                    output.n - chunk * images_));
    const auto thread = [&](const WinogradPass& pass, Index of) {
      const Index number = pass.thread(at.tile, of);
      return fmt::format("thread {} of CTA {}", number % cuda::winograd_threads,
                         number / cuda::winograd_threads);
    };
    const auto channels = [](const WinogradPass& pass, Index of, const char* what) {
      const int first = cuda::winograd_channel(pass.thread(0, of), pass.of_tile, pass.lanes);
      return pass.lanes == 1 ? fmt::format("{} {}", what, first)
                             : fmt::format("{}s {} and {}", what, first, first + 1);
    };
    add("input pass", thread(to_v_, channel),
        fmt::format("{}, inputs (h {}, w {}) to (h {}, w {})", channels(to_v_, channel, "channel"),
                    at.row - stage().pad.top, at.column - stage().pad.left,
                    at.row - stage().pad.top + f4::inputs - 1,
                    at.column - stage().pad.left + f4::inputs - 1));
    const Accumulator sum = products_->accumulator({at.tile, 0, 0, output.k});
    add("product 0",
        fmt::format("tile ({}, {}) of window, CTA {}", sum.tile.x, sum.tile.y, sum.tile.cta),
        fmt::format(
            "row {}, filter {}: warp {}, lane {}, {}; product xi is group xi, {} tiles along "
            "gemm_n further on each",
            sum.row, sum.column, sum.warp, sum.lane, sum.name,
            products_->accumulator({at.tile, 0, 0, stage().k + output.k}).tile.y - sum.tile.y));
    add("output pass", thread(from_m_, output.k), channels(from_m_, output.k, "filter"));
    return all;
  }

  void add_products(const OutputIndex& output, const TapIndex* tap, Index channel,
                    WinogradPlace& at) const {
    // A patch whose input is 1 where the tap reads, 0 elsewhere, and a filter likewise.
    float v[f4::inputs][f4::inputs] = {};
    double u[f4::inputs][f4::inputs] = {};
    if (tap) {
      v[at.i + tap->r][at.j + tap->s] = 1;
      transform_input(v);
      double down[f4::inputs], right[f4::inputs];
      const auto one = [](Index at_tap, double(&made)[f4::inputs]) {
        const double w[3] = {at_tap == 0 ? 1.0 : 0, at_tap == 1 ? 1.0 : 0, at_tap == 2 ? 1.0 : 0};
        f4::transform_filter(w, made);
      };
      one(tap->r, down), one(tap->s, right);
      for (int i = 0; i < f4::inputs; ++i)
        for (int j = 0; j < f4::inputs; ++j) u[i][j] = down[i] * right[j];
    }
    const int c = static_cast<int>(stage().c), k = static_cast<int>(stage().k);
    for (int i = 0; i < f4::inputs; ++i)
      for (int j = 0; j < f4::inputs; ++j) {
        const int xi = i * f4::inputs + j;
        at.products.push_back(
            {xi, i, j, output_factor(i, j, at.i, at.j), static_cast<double>(v[i][j]), u[i][j],
             Index{xi} * k + output.k,
             cuda::winograd_first(at.tile, c) + cuda::winograd_product(i, j, c) + channel,
             cuda::winograd_first(at.tile, k) + cuda::winograd_product(i, j, k) + output.k});
      }
  }

  /// As winograd_input does it: of each column, then of each row.
  static void transform_input(float (&v)[f4::inputs][f4::inputs]) {
    float line[f4::inputs], made[f4::inputs];
    for (int s = 0; s < f4::inputs; ++s) {
      for (int r = 0; r < f4::inputs; ++r) line[r] = v[r][s];
      f4::transform_input(line, made);
      for (int r = 0; r < f4::inputs; ++r) v[r][s] = made[r];
    }
    for (auto& row : v) {
      std::copy_n(row, f4::inputs, line);
      f4::transform_input(line, row);
    }
  }
  /// What 1 in product (i, j) gives output (row, column), as winograd_output does it.
  static double output_factor(int i, int j, int row, int column) {
    float line[f4::inputs] = {}, down[f4::outputs], right[f4::outputs];
    line[i] = 1;
    f4::transform_output(line, down);
    std::fill_n(line, f4::inputs, 0.0F);
    line[j] = down[row];
    f4::transform_output(line, right);
    return static_cast<double>(right[column]);
  }

  cuda::WinogradTiles tiles_;
  Index images_;
  WinogradPass to_v_, from_m_;
  std::unique_ptr<KernelMap> products_;
};

}  // namespace

std::unique_ptr<KernelMap> map_winograd_gpu(const Stage& stage, const Machine& machine,
                                            const std::string& tile) {
  expect_served("winograd4", stage, cuda::winograd_refusals(stage));
  std::string names;
  for (const int megabytes : cuda::winograd_megabytes(stage)) {
    const std::string name = cuda::winograd_tile_name(megabytes);
    if (tile.empty() || tile == name)
      return std::make_unique<WinogradGpuMap>(stage, machine, megabytes);
    names += (names.empty() ? "" : ", ") + name;
  }
  throw Error(fmt::format("explain: --tile \"{}\": winograd4 has for this stage {}", tile, names));
}

}  // namespace convoy::inspect
