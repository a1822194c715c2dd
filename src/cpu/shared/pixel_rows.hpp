// A run row by row over inputs where they lie, for kernels whose vectors hold channels and whose
// filters are so short that memory counts: pixels at the border leave out the taps outside the
// image instead of reading packed zeros. A pool takes rows of results while they lie in a cache.
#pragma once

#include <vector>

#include "core/kernel.hpp"
#include "cpu/shared/post_ops.hpp"
#include "math/divide.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {

/// At most so many pixels at a time.
inline constexpr Index max_row_pixels = 8;

/// Neighbouring pixels of a row of the convolution's output whose taps inside the image are the
/// same columns of the filter.
struct RowSegment {
  Index q = 0, count = 0;        // pixels [q, q + count)
  Index s = 0, tap_columns = 0;  // the first such column, and how many
  Index column = 0;              // of the image, where the first pixel meets it
};

/// A row of the convolution's output and some filters. Strides are in floats.
struct PixelRow {
  const float* x = nullptr;       // channel 0 of the image's column 0, where tap r meets it
  Index r = 0, tap_rows = 0;      // the filter's rows inside the image: the first, and how many
  Index row = 0, column = 0;      // from a tap to the next: input strides times dilation
  Index x_column = 0, pixel = 0;  // from a column of x to the next; from a pixel's to the next's
  Index k = 0, filters = 0;       // filters [k, k + filters)
  const float* bias = nullptr;    // of filter k; 16 more may be read behind the last
  float* y = nullptr;             // filter k of pixel 0
  Index y_pixel = 0;
};

/// A stage that is run row by row. What computes a row's pixels is derived from it.
class PixelRows {
 public:
  PixelRows(const PixelRows&) = delete;
  PixelRows& operator=(const PixelRows&) = delete;

 protected:
  /// Kernels are given filters from a multiple of `unit` on.
  PixelRows(const Stage& stage, const Machine& machine, Index unit);
  ~PixelRows() = default;

  /// All pixels of a row, with bias and clamp.
  virtual void run_row(const PixelRow& row) const noexcept = 0;
  const std::vector<RowSegment>& segments() const { return segments_; }
  /// body(x, y, pixels) for max_row_pixels of a segment at a time, or fewer.
  template <class Body>
  static void each_tile(const PixelRow& row, const RowSegment& segment, const Body& body) {
    const Index tiles = math::ceil_div(segment.count, max_row_pixels);
    const float* const x = row.x + segment.column * row.x_column;
    float* const y = row.y + segment.q * row.y_pixel;
    for (Index tile = 0; tile < tiles; ++tile) {
      const Index begin = segment.count * tile / tiles, end = segment.count * (tile + 1) / tiles;
      body(x + begin * row.pixel, y + begin * row.y_pixel, end - begin);
    }
  }

  /// Of the workspace that `run_rows` takes: biases, and each thread's rows before a pool.
  std::size_t bytes_of_rows() const;
  /// All rows of a run, pooled where the stage has a pool.
  void run_rows(const RunArgs& args) const noexcept;

  const Stage& stage() const { return stage_; }

 private:
  struct Target;
  Index floats_of_scratch() const;
  void list_segments();
  void run_row_of(const RunArgs& args, Index image, Index p, const Target& to) const;
  void run_pooled(const RunArgs& args, Index begin, Index end, float* scratch) const;

  Stage stage_;
  Shapes shapes_;
  PostOps post_;
  math::PoolAxis pool_rows_, pool_columns_;
  int threads_;
  Index biases_;
  Index block_ = 0;                   // filters of the rows that a pool takes
  std::vector<RowSegment> segments_;  // of every row
};

/// Of a run whose pixels have so many vectors of filters, each of so many products, which take so
/// many steps: a step is a multiply-add of a vector at the peak.
Cost cost_of_rows(const Stage& stage, Index vectors, double products, double steps,
                  const Machine& machine);

}  // namespace convoy::cpu
