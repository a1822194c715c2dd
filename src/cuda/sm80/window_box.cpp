// Which boxes a stage is cut into, for the window family's kernel of small groups.
#include <algorithm>

#include "core/kernel.hpp"
#include "cuda/sm80/window_tile.hpp"

namespace convoy::cuda::sm80 {
namespace {

int ceil_div(int a, int b) {
  return (a - 1) / b + 1;
}

}  // namespace

WindowBox box_of(const Stage& stage, const WindowTile& tile) {
  const auto i = [](Index v) { return static_cast<int>(v); };
  const Shapes shapes = shapes_of(stage);
  const int stride = i(stage.stride.w);
  WindowBox box;
  if (stage.r != box_taps_along || stage.s != box_taps_along || box_columns % stride != 0)
    return box;
  box.window = stage.pool ? 2 : 1;
  const int p = i(shapes.out_h) * box.window, q = i(shapes.out_w) * box.window;
  box.columns = q;
  box.in_columns = (q - 1) * stride + (box_taps_along - 1) * i(stage.dil.w) + 1;
  box.phases = stride, box.phase = ceil_div(box.in_columns, stride);
  const auto in_rows = [&](int rows) {
    return (rows - 1) * i(stage.stride.h) + (box_taps_along - 1) * i(stage.dil.h) + 1;
  };
  const Index row_bytes = Index{box.in_row()} * box_pixel_bytes;
  int rows = std::clamp(tile.m / q / box.window * box.window, box.window, p);
  while (rows > 0 && in_rows(rows) * row_bytes > most_box_bytes) rows -= box.window;
  if (rows == 0) return box;
  const int of_image = ceil_div(p, rows);
  box.rows = ceil_div(ceil_div(p, of_image), box.window) * box.window;
  box.in_rows = in_rows(box.rows);
  if (of_image == 1)
    box.images =
        std::clamp(std::min(tile.m / (p * q), most_box_bytes / box.bytes()), 1, i(stage.n));
  box.down = FastDivisor(box.rows / box.window), box.across = FastDivisor(q / box.window);
  box.of_rows = FastDivisor(box.in_rows), box.of_image = FastDivisor(ceil_div(p, box.rows));
  for (int tap = 0; tap < box_taps; ++tap)
    box.taps[tap] =
        box.input_at(tap / box_taps_along * i(stage.dil.h), tap % box_taps_along * i(stage.dil.w));
  box.next_columns = box_columns / stride * box_pixel_bytes;
  return box;
}

int box_parts(const WindowGroups& groups, DType type) {
  if (groups.channels * static_cast<int>(size_of(type)) <= product_bytes) return 1;
  if (groups.merged == 1) return 2;
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t first = groups.live >> (2 * half) & 3,
                        second = groups.live >> (4 + 2 * half) & 3;
    if (first != 0 && second != 0) return 2;
  }
  return 1;
}

void set_machine(WindowSizes& sizes, const Stage& stage, const WindowTile& tile,
                 const Machine& machine) {
  if (!tile.box) return;
  WindowBox box = sizes.box;
  box.slots = 2;
  const int fit = static_cast<int>(machine.shared_memory_bytes) / (box.shared_bytes() + 1024);
  sizes.box_ctas = machine.multiprocessors * std::clamp(fit, 1, tile.ctas);
  set_images(sizes, tile, stage.n);
}

}  // namespace convoy::cuda::sm80
