// How the halo family's tensors lie in memory: the packed weights and the tensor maps.
#include <fmt/core.h>

#include <algorithm>

#include "cuda/sm90/halo_layout.hpp"
#include "cuda/sm90/shared_memory.hpp"

namespace convoy::cuda::sm90 {

Index halo_weights_elements(const Stage& stage) {
  return ceil_div(stage.c, row_channels) * stage.r * stage.s * stage.k * row_channels;
}

std::vector<float> halo_weights(const Stage& stage, const float* w) {
  const std::vector<int> order = halo_tap_order(stage);
  std::vector<float> packed(static_cast<std::size_t>(halo_weights_elements(stage)));
  float* to = packed.data();
  for (Index first = 0; first < stage.c; first += row_channels) {
    for (const int tap : order) {
      for (Index k = 0; k < stage.k; ++k, to += row_channels)
        std::copy_n(w + (k * stage.r * stage.s + tap) * stage.c + first,
                    std::min<Index>(row_channels, stage.c - first), to);
    }
  }
  return packed;
}

std::string halo_packing(const Stage& stage) {
  return fmt::format("{} k{}c{}r{}s{}stride{}x{}dil{}x{}", to_text(stage.dtype), stage.k, stage.c,
                     stage.r, stage.s, stage.stride.h, stage.stride.w, stage.dil.h, stage.dil.w);
}

namespace {

/// Makes room for the time steps behind the second axis: `count` of them, so many bytes apart, of
/// which a box has some.
void insert_time(TensorMapArgs& map, Index count, std::uint64_t stride, int in_box) {
  const auto insert = [](auto& axes, auto value) {
    std::copy_backward(axes.begin() + 2, axes.end() - 1, axes.end());
    axes[2] = value;
  };
  map.rank = 5;
  insert(map.size, static_cast<std::uint64_t>(count));
  insert(map.stride, stride);
  insert(map.box, static_cast<std::uint32_t>(in_box));
  insert(map.step, 1U);
}

}  // namespace

TensorMapArgs halo_x_map(const Stage& stage, const HaloTile& tile, const HaloLayout& layout,
                         Index pixel_stride) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const auto reach = [](int box, Index step) {
    return static_cast<std::uint32_t>((box - 1) * step + 1);
  };
  const std::uint64_t pixel = u(pixel_stride) * value_bytes;
  TensorMapArgs map{.dtype = stage.dtype, .rank = 5};
  const bool whole = layout.chunk_channels == 0;
  const auto bn = static_cast<std::uint32_t>(layout.box_n);
  const auto sw = static_cast<std::uint32_t>(stage.stride.w),
             sh = static_cast<std::uint32_t>(stage.stride.h);
  if (tile.inner == Inner::line) {
    const std::uint64_t pixels = u(stage.n * stage.h * stage.w);
    map.size = {u(stage.c), pixels, 1, 1};
    map.stride = {0, pixel, pixel * pixels, pixel * pixels};
    map.box = {row_channels, static_cast<std::uint32_t>(layout.box_w), 1, 1};
  } else if (tile.inner == Inner::pixels) {
    map.size = {u(stage.c), u(stage.w), u(stage.h), u(stage.n)};
    map.stride = {0, pixel, pixel * u(stage.w), pixel * u(stage.w) * u(stage.h)};
    map.box = {row_channels, reach(layout.box_w, stage.stride.w),
               reach(layout.box_h, stage.stride.h), bn};
    map.step = {1, sw, sh, 1, 1};
  } else {
    map.size = {u(stage.c), u(stage.n), u(stage.w), u(stage.h)};
    map.stride = {0, pixel * u(stage.w) * u(stage.h), pixel, pixel * u(stage.w)};
    map.box = {row_channels, bn, reach(layout.box_w, stage.stride.w),
               reach(layout.box_h, stage.stride.h)};
    map.step = {1, 1, sw, sh, 1};
  }
  if (layout.time_steps > 1) {
    insert_time(map, stage.t, pixel * u(stage.n * stage.h * stage.w), layout.time_steps);
    return map;
  }
  // Chunks of channels are an axis of their own where all of them are whole.
  if (whole) map.size[0] = row_channels;
  map.size[4] = whole ? u(stage.c) / row_channels : 1;
  map.stride[4] = row_bytes;
  map.box[4] = static_cast<std::uint32_t>(layout.load_chunks);
  return map;
}

TensorMapArgs halo_w_map(const Stage& stage, const HaloTile& tile, const HaloLayout& layout) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  TensorMapArgs map{.dtype = stage.dtype, .rank = 3};
  map.size = {row_channels, u(stage.k), u(layout.chunks * layout.taps)};
  map.stride = {0, row_bytes, u(stage.k) * row_bytes};
  map.box = {row_channels, static_cast<std::uint32_t>(tile.cta_channels()),
             static_cast<std::uint32_t>(layout.slab_taps)};
  return map;
}

TensorMapArgs halo_y_map(const Stage& stage, const HaloTile& tile, Index pixel_stride) {
  const auto u = [](Index v) { return static_cast<std::uint64_t>(v); };
  const Shapes shapes = shapes_of(stage);
  const bool sums = gives_sums(stage);
  const std::uint64_t pixel = u(pixel_stride) * size_of(stage.output_dtype(true));
  const std::uint64_t image = pixel * u(shapes.out_w) * u(shapes.out_h);
  // Without a pool a tile leaves in parts of an instruction.
  const auto u32 = [](int v) { return static_cast<std::uint32_t>(v); };
  const int pieces = store_pieces(tile.instruction_n(), sums);
  // An instruction's pixels are one row of images, or some rows: of eight pixels, or a brick's.
  const bool pooled = stage.pool.has_value(), row = tile.inner == Inner::images;
  const bool brick = tile.inner == Inner::brick, rows_apart = !row && tile.bh % pieces == 0;
  const auto bw = u32(pooled         ? tile.bw / 2
                      : row || brick ? tile.bw / (rows_apart ? 1 : pieces)
                                     : 8);
  const auto bh = u32(pooled ? tile.bh / 2 : row ? 1 : tile.bh / (rows_apart ? pieces : 1));
  const auto bn = u32(pooled || tile.images_first() ? tile.bn : 1),
             channels = u32(tile.half || sums ? block_channels / 2 : block_channels);
  TensorMapArgs map{.dtype = stage.output_dtype(true), .rank = 4};
  if (tile.inner == Inner::line) {
    const std::uint64_t pixels = u(stage.n * stage.h * stage.w);
    map.size = {u(stage.k), pixels, 1, 1};
    map.stride = {0, pixel, pixel * pixels, pixel * pixels};
    map.box = {channels, u32(tile.bw / pieces), 1, 1};
  } else if (tile.inner == Inner::pixels) {
    map.size = {u(stage.k), u(shapes.out_w), u(shapes.out_h), u(stage.n)};
    map.stride = {0, pixel, pixel * u(shapes.out_w), image};
    map.box = {channels, bw, bh, bn};
  } else {
    map.size = {u(stage.k), u(stage.n), u(shapes.out_w), u(shapes.out_h)};
    map.stride = {0, image, pixel, pixel * u(shapes.out_w)};
    map.box = {channels, bn, bw, bh};
  }
  if (stage.act.is_neuron()) insert_time(map, stage.t, image * u(stage.n), tile.time_steps);
  return map;
}

}  // namespace convoy::cuda::sm90
