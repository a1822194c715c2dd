// Kernel `spike_resident` by wgmma: which weight and which output lies in which row of a product,
// and where in shared memory what it reads. Plain arithmetic, for the kernel and the tests alike.
//
// A warpgroup takes an image through both convolutions. Weights are the left operand, 64 rows of
// filters, in registers; spikes or pixels the right one, where they lie in shared memory: eight
// units of eight values in a row are a core matrix, and a tap is the same memory further on. A
// product has two units in its depth, input rows 2 * p and 2 * p + 1 of a window of six.
#pragma once

#include "math/host_device.hpp"

namespace convoy::cuda::sm80 {

inline constexpr int warpgroup_warps = 4, warpgroup_lanes = 128;
inline constexpr int resident_warpgroups = 3;
inline constexpr int warps_of_warpgroups = resident_warpgroups * warpgroup_warps;
/// Rows of input that the two output rows of a pool's window read, in pairs.
inline constexpr int window_rows = 6, row_pairs = window_rows / 2;

/// What a lane holds of a product's rows: its filter, and whether it has the lower row of windows.
/// Row 16 * warp + lane / 4 + 8 * half of the product has them.
struct LaneRows {
  int filter = 0, lower = 0;
};

/// The first layer: rows are 8 filters by the four columns of a group by both rows of a window;
/// `half` is a column of the window, of which a group has two. Terms of weights are products of
/// their own.
struct FirstByWarpgroup {
  static constexpr int n = 72;              // columns of the product: 12 rows of windows, 6 groups
  static constexpr int row_bytes = 6 * 16;  // input rows of one parity lie behind each other
  static constexpr int parity_bytes = 14 * row_bytes;
  static constexpr int bytes = 2 * parity_bytes;

  CONVOY_HD static constexpr LaneRows rows(int warp, int lane) {
    return {4 * (warp & 1) + (lane >> 2 & 3), lane >> 4};
  }
  /// Which of the group's two windows.
  CONVOY_HD static constexpr int window(int warp) { return warp >> 1; }
  CONVOY_HD static constexpr int phase(int warp, int half) { return 2 * window(warp) + half; }
  /// Where the unit of an input row and a group lies.
  CONVOY_HD static constexpr int unit(int row, int group) {
    return (row & 1) * parity_bytes + (row >> 1) * row_bytes + group * 16;
  }
};

/// The second layer: rows are 16 filters by both rows of a window; `half` is a term of the weights.
struct SecondByWarpgroup {
  static constexpr int n = 32;  // columns of the product, of a step: 4 rows of windows, 8 pixels
  static constexpr int columns = 5;  // taps
  static constexpr int pixel_bytes = 16, row_bytes = 12 * pixel_bytes;
  static constexpr int step_bytes = 12 * row_bytes;
  static constexpr int bytes = 2 * step_bytes;

  CONVOY_HD static constexpr LaneRows rows(int warp, int lane) {
    return {4 * warp + (lane >> 2 & 3), lane >> 4};
  }
};

/// Linear layers: rows are 32 filters by both terms (`half`), columns images. Spikes of a round lie
/// [step][eight features][image] in units of eight features; between units 16 bytes more, so that
/// features which a warp writes at once lie in different banks.
struct LinearByWarpgroup {
  static constexpr int n = 40;  // images of a product
  static constexpr int filters = 32;
  static constexpr int batch = 3 * n;  // images of a round
  static constexpr int unit_bytes = batch * 16 + 16;

  /// The filter of its tile.
  CONVOY_HD static constexpr int filter(int warp, int lane) { return 8 * warp + (lane >> 2); }
  /// Where feature `feature` of an image lies, of a layer's `units` eights of them.
  CONVOY_HD static constexpr int place(int units, int step, int feature, int image) {
    return (step * units + feature / 8) * unit_bytes + image * 16 + feature % 8 * 2;
  }
};

/// The same of few images, one a warpgroup in a round: both steps of all of them are columns of one
/// product.
struct FewByWarpgroup {
  static constexpr int n = 8;  // columns: image 0, step 0; image 0, step 1; and so on
  static constexpr int batch = resident_warpgroups;
  static constexpr int unit_bytes = n * 16 + 16;

  CONVOY_HD static constexpr int place(int, int step, int feature, int image) {
    return feature / 8 * unit_bytes + (2 * image + step) * 16 + feature % 8 * 2;
  }
};

/// Memory of a warpgroup: the pixels of its image, then the first layer's spikes.
inline constexpr int warpgroup_map = FirstByWarpgroup::bytes;
inline constexpr int warpgroup_bytes =
    (FirstByWarpgroup::bytes + SecondByWarpgroup::bytes + 127) / 128 * 128;

}  // namespace convoy::cuda::sm80
