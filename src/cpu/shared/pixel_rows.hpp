// A run row by row over inputs where they lie, for kernels whose vectors hold channels and whose
// filters are so short that memory counts: pixels at the border leave out the taps outside the
// image instead of reading packed zeros. A pool takes rows of results while they lie in a cache.
#pragma once

#include "core/kernel.hpp"
#include "math/pool.hpp"

namespace convoy::cpu {

/// At most so many pixels at a time.
inline constexpr Index max_row_pixels = 8;

/// Neighbouring pixels of one row of the convolution's output whose taps inside the image are the
/// same, at least one. Strides are in floats.
struct RowPixels {
  Index count = 0;
  const float* x = nullptr;             // channel 0 of the first pixel's first tap inside the image
  Index r = 0, s = 0;                   // which tap that is
  Index tap_rows = 0, tap_columns = 0;  // inside the image, from it on
  Index row = 0, column = 0;            // from a tap to the next: input strides times dilation
  Index pixel = 0;                      // from a pixel's input to the next pixel's
  Index k = 0, filters = 0;             // filters [k, k + filters)
  const float* bias = nullptr;          // of filter k; 16 more may be read behind the last
  float* y = nullptr;                   // filter k of the first pixel
  Index y_pixel = 0;
};

class PixelRows {
 public:
  PixelRows(const PixelRows&) = delete;
  PixelRows& operator=(const PixelRows&) = delete;

 protected:
  /// Kernels are given filters from a multiple of `unit` on.
  PixelRows(const Stage& stage, const Machine& machine, Index unit);
  ~PixelRows() = default;

  virtual void run_pixels(const RowPixels& pixels) const noexcept = 0;

  std::size_t bytes_of_rows() const;
  void run_rows(const RunArgs& args) const noexcept;

  const Stage& stage() const { return stage_; }
  const Shapes& shapes() const { return shapes_; }

 private:
  struct Target;
  Index floats_of_scratch() const;
  void run_row(const RunArgs& args, Index image, Index p, const Target& to) const;
  void run_pooled(const RunArgs& args, Index begin, Index end, float* scratch) const;

  Stage stage_;
  Shapes shapes_;
  math::PoolAxis pool_rows_, pool_columns_;
  int threads_;
  Index biases_;
  Index block_ = 0;  // filters of the rows that a pool takes
  // Pixels of a row with all columns of the filter inside the image.
  Index interior_ = 0, interior_end_ = 0;
};

/// Seconds that the pool adds to one thread's work; 0 without one.
double pooling_seconds(const Stage& stage, const Shapes& shapes, const Machine& machine);

}  // namespace convoy::cpu
