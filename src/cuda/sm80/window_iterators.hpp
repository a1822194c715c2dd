// Who visits the pixels of an implicit GEMM: a thread's rows of a tile, step by step. Three types
// with one interface, which the kernel is instantiated with and the host can call; they agree on
// every position, its validity and its address.
//
//   at()       (n, h, w) and the byte in the group's channels; outside the image where padding is
//   valid()    whether any of the 16 bytes are there to be read: at() is inside, and has channels
//   bytes()    how many
//   get()      distance of the 16 bytes from the group's first channel of x, in bytes
//   ++         the thread's next row of this step; behind the last one the first
//   advance()  the next step, in the order S, R, C; of Optimized also advance_by_selects()
#pragma once

#include <cstdint>

#include "cuda/sm80/window_geometry.hpp"

namespace convoy::cuda::sm80 {

struct WindowAt {
  int n = 0, h = 0, w = 0, byte = 0;
  bool operator==(const WindowAt&) const = default;
};

/// The step that a thread is at. What all iterators count alike.
struct WindowStep {
  int s = 0, r = 0, byte = 0;  // the tap; the first byte of the thread's unit among the channels

  CONVOY_HD explicit WindowStep(int unit) : byte(unit * unit_bytes) {}
  CONVOY_HD bool next_s(const WindowGeometry& g) {
    if (++s < g.s) return true;
    s = 0;
    return false;
  }
  CONVOY_HD bool next_r(const WindowGeometry& g) {
    if (++r < g.r) return true;
    r = 0;
    return false;
  }
  CONVOY_HD void next_c() { byte += chunk_bytes; }
  CONVOY_HD int bytes(const WindowGeometry& g) const {
    const int left = g.channel_bytes - byte;
    return left <= 0 ? 0 : left < unit_bytes ? left : unit_bytes;
  }
};

/// A tap of the table that `Precomputed` walks, R by S of them.
struct WindowTap {
  Index distance = 0;  // from the first tap, bytes
  int h = 0, w = 0;    // likewise, pixels
};
CONVOY_HD WindowTap tap_of(const WindowGeometry& g, int number) {
  const int h = number / g.s * g.rows.dil, w = number % g.s * g.columns.dil;
  return {h * g.row + w * g.pixel, h, w};
}

/// Coordinates at each access. Any filter; `flip`: true convolution, taps from last to first.
template <int Rows>
class Analytic {
 public:
  /// Rows `first`, `first` + `between`, ... of the GEMM, a thread's `unit` of each.
  CONVOY_HD Analytic(const WindowGeometry& g, int first, int between, int unit,
                     const WindowTap* = nullptr, bool flip = false)
      : g_(g), step_(unit), flip_(flip) {
    for (int i = 0; i < Rows; ++i) {
      const int m = first + i * between;
      const math::ConvPixel<int> pixel = g.pixel_of(m < g.m ? m : 0);
      n_[i] = m < g.m ? pixel.n : -1;
      p_[i] = pixel.p, q_[i] = pixel.q;
    }
  }
  CONVOY_HD WindowAt at() const {
    const int r = flip_ ? g_.r - 1 - step_.r : step_.r, s = flip_ ? g_.s - 1 - step_.s : step_.s;
    return {n_[i_], g_.rows.at(p_[i_], r), g_.columns.at(q_[i_], s), step_.byte};
  }
  CONVOY_HD bool valid() const { return bytes() > 0; }
  CONVOY_HD int bytes() const {
    const WindowAt a = at();
    return a.n >= 0 && g_.rows.inside(a.h) && g_.columns.inside(a.w) ? step_.bytes(g_) : 0;
  }
  CONVOY_HD Index get() const {
    const WindowAt a = at();
    return a.n * g_.image + a.h * g_.row + a.w * g_.pixel + a.byte;
  }
  CONVOY_HD Analytic& operator++() {
    i_ = i_ + 1 < Rows ? i_ + 1 : 0;
    return *this;
  }
  CONVOY_HD void advance() {
    i_ = 0;
    if (step_.next_s(g_) || step_.next_r(g_)) return;
    step_.next_c();
  }

 private:
  const WindowGeometry& g_;
  WindowStep step_;
  bool flip_;
  int i_ = 0;
  int n_[Rows], p_[Rows], q_[Rows];
};

/// Where a thread's rows begin: the position that the first tap reads.
template <int Rows>
struct FirstTaps {
  int n[Rows], h[Rows], w[Rows];

  CONVOY_HD FirstTaps(const WindowGeometry& g, int first, int between) {
    for (int i = 0; i < Rows; ++i) {
      const int m = first + i * between;
      const math::ConvPixel<int> pixel = g.pixel_of(m < g.m ? m : 0);
      n[i] = m < g.m ? pixel.n : -1;
      h[i] = g.rows.at(pixel.p, 0), w[i] = g.columns.at(pixel.q, 0);
    }
  }
  CONVOY_HD Index place(const WindowGeometry& g, int i) const {
    return (n[i] < 0 ? 0 : n[i]) * g.image + h[i] * g.row + w[i] * g.pixel;
  }
};

/// A place for each row, a distance that all of them move on by, and masks of the taps that lie
/// inside the image. R and S of up to 32. The kernel's default.
template <int Rows>
class Optimized {
 public:
  CONVOY_HD Optimized(const WindowGeometry& g, int first, int between, int unit,
                      const WindowTap* = nullptr)
      : g_(g), step_(unit), from_(g, first, between), moved_(step_.byte) {
    for (int i = 0; i < Rows; ++i) {
      place_[i] = from_.place(g, i);
      rows_[i] = from_.n[i] < 0 || step_.bytes(g) == 0 ? 0 : mask(g.rows, from_.h[i], g.r);
      columns_[i] = mask(g.columns, from_.w[i], g.s);
    }
  }
  CONVOY_HD WindowAt at() const {
    return {from_.n[i_], from_.h[i_] + step_.r * g_.rows.dil,
            from_.w[i_] + step_.s * g_.columns.dil, step_.byte};
  }
  CONVOY_HD bool valid() const { return (rows_[i_] & r_) != 0 && (columns_[i_] & s_) != 0; }
  CONVOY_HD int bytes() const { return valid() ? step_.bytes(g_) : 0; }
  CONVOY_HD Index get() const { return place_[i_] + moved_; }
  CONVOY_HD Optimized& operator++() {
    i_ = i_ + 1 < Rows ? i_ + 1 : 0;
    return *this;
  }
  CONVOY_HD void advance() {
    i_ = 0;
    s_ <<= 1;
    if (step_.next_s(g_)) {
      moved_ += g_.next_s;
      return;
    }
    s_ = 1, r_ <<= 1;
    if (step_.next_r(g_)) {
      moved_ += g_.next_r;
      return;
    }
    r_ = 1;
    step_.next_c();
    moved_ += g_.next_c;
    if (step_.bytes(g_) > 0) return;
    for (int i = 0; i < Rows; ++i) rows_[i] = 0;  // the last chunk ends before this unit
  }
  /// The same by selects, which may stand between products where a branch would hold them up.
  CONVOY_HD void advance_by_selects() {
    i_ = 0;
    const bool next_r = step_.s + 1 == g_.s, next_c = next_r && step_.r + 1 == g_.r;
    step_.s = next_r ? 0 : step_.s + 1;
    s_ = next_r ? 1 : s_ << 1;
    step_.r = next_c ? 0 : step_.r + (next_r ? 1 : 0);
    r_ = next_c ? 1 : r_ << (next_r ? 1 : 0);
    step_.byte += next_c ? chunk_bytes : 0;
    // As a sum: for a choice among three members ptxas would select an address and load from it.
    moved_ +=
        g_.next_s + (next_r ? g_.next_r - g_.next_s : 0) + (next_c ? g_.next_c - g_.next_r : 0);
    const std::uint32_t left = step_.byte < g_.channel_bytes ? ~std::uint32_t{0} : 0;
    for (int i = 0; i < Rows; ++i) rows_[i] &= left;
  }
  CONVOY_HD const WindowStep& step() const { return step_; }
  CONVOY_HD int row() const { return i_; }

 private:
  static CONVOY_HD std::uint32_t mask(const math::ConvAxis<int>& axis, int first, int taps) {
    std::uint32_t inside = 0;
    for (int tap = 0; tap < taps && tap < most_taps_along; ++tap)
      inside |= static_cast<std::uint32_t>(axis.inside(first + tap * axis.dil)) << tap;
    return inside;
  }

  const WindowGeometry& g_;
  WindowStep step_;
  FirstTaps<Rows> from_;
  Index moved_;
  int i_ = 0;
  std::uint32_t r_ = 1, s_ = 1;  // the tap's bits
  Index place_[Rows];
  std::uint32_t rows_[Rows], columns_[Rows];
};

/// As Optimized, for any R and S: where a mask has no bits for all taps, by coordinates.
template <int Rows>
class Unlimited : public Optimized<Rows> {
 public:
  CONVOY_HD Unlimited(const WindowGeometry& g, int first, int between, int unit,
                      const WindowTap* taps = nullptr)
      : Optimized<Rows>(g, first, between, unit, taps), g_(g), first_(first), between_(between) {}
  CONVOY_HD bool valid() const {
    if (g_.r <= most_taps_along && g_.s <= most_taps_along) return Optimized<Rows>::valid();
    const int m = first_ + this->row() * between_;
    if (m >= g_.m || this->step().byte >= g_.channel_bytes) return false;
    const math::ConvPixel<int> pixel = g_.pixel_of(m);  // anew: kept, it would take registers
    return g_.rows.inside(g_.rows.at(pixel.p, this->step().r)) &&
           g_.columns.inside(g_.columns.at(pixel.q, this->step().s));
  }
  CONVOY_HD int bytes() const { return valid() ? this->step().bytes(g_) : 0; }

 private:
  const WindowGeometry& g_;
  int first_, between_;
};

/// A place for each row, and a table of the taps' distances from it, made once: what profilers show
/// of cuDNN as computeOffsetsKernel. Any filter whose table fits.
template <int Rows>
class Precomputed {
 public:
  CONVOY_HD Precomputed(const WindowGeometry& g, int first, int between, int unit,
                        const WindowTap* taps)
      : g_(g), step_(unit), taps_(taps), from_(g, first, between), bytes_(step_.bytes(g)) {
    for (int i = 0; i < Rows; ++i) place_[i] = from_.place(g, i);
  }
  CONVOY_HD WindowAt at() const {
    const WindowTap& tap = taps_[tap_];
    return {from_.n[i_], from_.h[i_] + tap.h, from_.w[i_] + tap.w, step_.byte};
  }
  CONVOY_HD bool valid() const { return bytes() > 0; }
  CONVOY_HD int bytes() const {
    const WindowAt a = at();
    return a.n >= 0 && g_.rows.inside(a.h) && g_.columns.inside(a.w) ? bytes_ : 0;
  }
  CONVOY_HD Index get() const { return place_[i_] + taps_[tap_].distance + step_.byte; }
  CONVOY_HD Precomputed& operator++() {
    i_ = i_ + 1 < Rows ? i_ + 1 : 0;
    return *this;
  }
  CONVOY_HD void advance() {
    i_ = 0;
    if (++tap_ < g_.r * g_.s) return;
    tap_ = 0;
    step_.next_c();
    bytes_ = step_.bytes(g_);
  }

 private:
  const WindowGeometry& g_;
  WindowStep step_;
  const WindowTap* taps_;
  FirstTaps<Rows> from_;
  int tap_ = 0, bytes_, i_ = 0;
  Index place_[Rows];
};

}  // namespace convoy::cuda::sm80
