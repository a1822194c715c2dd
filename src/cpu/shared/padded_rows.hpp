// Copies input rows into scratch with their padding as zeros, as fp32 and with `norm` applied, so
// that types, layouts and borders are dealt with once an element and not once a tap.
#pragma once

#include "core/kernel.hpp"

namespace convoy::cpu {

struct PaddedRows {
  Stage stage;
  Index columns = 0;      // of a packed row, left padding included
  Index pixel_pitch = 0;  // floats from a packed pixel to the next, ≥ C
  Index row_pitch = 0;    // floats from a packed row to the next, ≥ columns · pixel_pitch

  /// Rows [first, first + count) of the image, counted without padding: first may be negative.
  /// Floats between C and the pitch stay as they are. Reads u8 and f32.
  void pack(const RunArgs& args, Index image, Index first, Index count, float* to) const {
    pack(args, image, first, count, 0, columns, to);
  }
  /// Only the packed columns [begin, end) of these rows.
  void pack(const RunArgs& args, Index image, Index first, Index count, Index begin, Index end,
            float* to) const;

 private:
  void pack_row(const RunArgs& args, Index image, Index row, Index begin, Index end,
                float* to) const;
};

}  // namespace convoy::cpu
