// The taps of a filter in the order of summation, and which boxes of pixels they read.
#include <algorithm>
#include <span>

#include "core/failure.hpp"
#include "cuda/sm90/halo_layout.hpp"

namespace convoy::cuda::sm90 {
namespace {

/// `of` says what it is; strides of at most 8 and filters of at most max_taps are within.
std::uint8_t eight_bits(int value, const char* of) {
  if (value < 0 || value > std::numeric_limits<std::uint8_t>::max())
    throw InternalError("halo: " + std::string(of) + " of a box is " + std::to_string(value) +
                        ", the kernel's table holds 0 to 255");
  return static_cast<std::uint8_t>(value);
}

}  // namespace

/// Taps, grouped into boxes by the parity of their offset, so that stride and dilation become plain
/// shifts inside a box. The order is the arithmetic's: it depends on the stage alone.
void lay_taps(const Stage& stage, bool one_tap_a_box, HaloLayout& out) {
  struct Tap {
    int dy, dx, index;
  };
  const int sh = static_cast<int>(stage.stride.h), sw = static_cast<int>(stage.stride.w);
  int reach_w = 0, reach_h = 0, taps = 0, boxes = 0;
  out.box_x = one_tap_a_box ? static_cast<int>(stage.dil.w) : 1;
  out.box_y = one_tap_a_box ? static_cast<int>(stage.dil.h) : 1;
  for (int py = 0; py < sh; ++py) {
    for (int px = 0; px < sw; ++px) {
      std::array<Tap, max_taps> members;  // no vector: a plan lays out hundreds of tiles
      std::size_t count = 0;
      for (int r = 0; r < stage.r; ++r) {
        for (int s = 0; s < stage.s; ++s) {
          const int dy = r * static_cast<int>(stage.dil.h), dx = s * static_cast<int>(stage.dil.w);
          if (dy % sh == py && dx % sw == px)
            members[count++] = {dy, dx, r * static_cast<int>(stage.s) + s};
        }
      }
      for (const Tap& tap : std::span(members).first(count)) {
        const bool opens = one_tap_a_box || &tap == &members.front();
        const auto t = static_cast<std::size_t>(taps++);
        if (opens) {
          const int dx = one_tap_a_box ? tap.dx : px, dy = one_tap_a_box ? tap.dy : py;
          out.box_place[boxes] = {eight_bits(dx / out.box_x, "the column"),
                                  eight_bits(dy / out.box_y, "the row")};
          out.box[boxes++] = {static_cast<std::int16_t>(dx), static_cast<std::int16_t>(dy),
                              static_cast<std::uint8_t>(t), 0};
        }
        TapBox& box = out.box[boxes - 1];
        ++box.count;
        const int x = (tap.dx - box.dx) / sw, y = (tap.dy - box.dy) / sh;
        reach_w = std::max(reach_w, x);
        reach_h = std::max(reach_h, y);
        out.tap_index[t] = static_cast<std::uint8_t>(tap.index);
        out.tap_shift[t] = static_cast<std::uint16_t>(y << 8 | x);  // lay_box makes shifts of them
      }
    }
  }
  out.taps = taps;
  out.boxes = boxes;
  out.box_w = reach_w;
  out.box_h = reach_h;
}

std::vector<int> halo_tap_order(const Stage& stage) {
  HaloLayout layout;
  lay_taps(stage, false, layout);
  return {layout.tap_index.begin(), layout.tap_index.begin() + layout.taps};
}

}  // namespace convoy::cuda::sm90
