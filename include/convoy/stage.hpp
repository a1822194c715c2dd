// What to compute: one convolution with everything that rides on its way out.
//
//     y = pool( act( conv(x, w) + bias ) )
//
// A `Stage` says nothing about how or where; see plan.hpp for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/export.hpp"

namespace convoy {

using Index = std::int64_t;

enum class DType : std::uint8_t { f32, f16, bf16, u8, i32 };
/// "f32"; "?" for a number that is no type.
CONVOY_API std::string_view to_text(DType dtype);
/// Bytes of one element; 4 for a number that is no type.
CONVOY_API std::size_t size_of(DType dtype);

enum class Layout : std::uint8_t { nhwc, nchw };

/// Height and width of one thing: a stride, a dilation, a window.
struct Extent {
  Index h = 1, w = 1;
  constexpr Extent(Index both = 1) : h(both), w(both) {}  // NOLINT: `.stride = 2` is the point
  constexpr Extent(Index h_, Index w_) : h(h_), w(w_) {}
  bool operator==(const Extent&) const = default;
};

/// Zeros around the image, in pixels.
struct Padding {
  Index top = 0, left = 0, bottom = 0, right = 0;
  constexpr Padding(Index all = 0) : top(all), left(all), bottom(all), right(all) {}  // NOLINT
  constexpr Padding(Index h, Index w) : top(h), left(w), bottom(h), right(w) {}
  constexpr Padding(Index t, Index l, Index b, Index r) : top(t), left(l), bottom(b), right(r) {}
  bool operator==(const Padding&) const = default;
};

/// What is applied to conv + bias, element by element. Made by the functions below it:
/// `Stage{..., .act = relu}`, `.act = clip_to(0, 1)`, `.act = lif(2, 0.5F)`.
struct Activation {
  enum class Kind : std::uint8_t {
    none,
    relu,   // max(v, 0)
    relu6,  // min(max(v, 0), 6)
    clip,   // min(max(v, lo), hi)
    leaky,  // v >= 0 ? v : slope*v
    if_,    // integrate and fire: v += x, spike where v >= threshold
    lif,    // leaky integrate and fire: v += (x - v)/tau, spike where v >= threshold
  };
  Kind kind = Kind::none;

  constexpr Activation() = default;
  /// A kind without parameters.
  constexpr explicit Activation(Kind kind_) : kind(kind_) {}

  constexpr bool is_neuron() const { return kind == Kind::if_ || kind == Kind::lif; }
  /// The parameters, each 0 where the kind has none of that name.
  constexpr float lo() const { return kind == Kind::clip ? first_ : 0; }
  constexpr float hi() const { return kind == Kind::clip ? second_ : 0; }
  constexpr float slope() const { return kind == Kind::leaky ? first_ : 0; }
  constexpr float tau() const { return kind == Kind::lif ? first_ : 0; }
  constexpr float threshold() const {
    return kind == Kind::lif ? second_ : kind == Kind::if_ ? first_ : 0;
  }
  /// False where the kind was changed by hand and a parameter of another is left behind.
  constexpr bool consistent() const {
    const int parameters = kind == Kind::clip || kind == Kind::lif    ? 2
                           : kind == Kind::leaky || kind == Kind::if_ ? 1
                                                                      : 0;
    return (parameters > 0 || first_ == 0) && (parameters > 1 || second_ == 0);
  }
  bool operator==(const Activation&) const = default;

 private:
  friend constexpr Activation clip_to(float lo, float hi);
  friend constexpr Activation leaky(float slope);
  friend constexpr Activation integrate_fire(float th);
  friend constexpr Activation lif(float tau, float th);
  // + 0 turns -0 into 0: a bound of -0 would show where a pool meets zeros of both signs.
  constexpr Activation(Kind kind_, float first, float second = 0)
      : kind(kind_), first_(first + 0.0F), second_(second + 0.0F) {}
  float first_ = 0, second_ = 0;
};
inline constexpr Activation no_act{};
inline constexpr Activation relu{Activation::Kind::relu};
inline constexpr Activation relu6{Activation::Kind::relu6};
/// min(max(v, lo), hi), lo ≤ hi; either may be infinite.
constexpr Activation clip_to(float lo, float hi) {
  return {Activation::Kind::clip, lo, hi};
}
/// v ≥ 0 ? v : slope·v
constexpr Activation leaky(float slope) {
  return {Activation::Kind::leaky, slope};
}
/// A neuron: v += x, a spike where v ≥ th.
constexpr Activation integrate_fire(float th = 1) {
  return {Activation::Kind::if_, th};
}
/// A leaky neuron: v += (x − v)/tau, tau ≥ 1, a spike where v ≥ th.
constexpr Activation lif(float tau = 2, float th = 1) {
  return {Activation::Kind::lif, tau, th};
}

/// Max-pooling as PyTorch defines it: -inf outside the image, NaN wins, the first maximum in
/// row-major order gives the index.
struct Pool {
  Extent window{2};
  Extent stride{0};  // 0: the window
  Extent pad{0};     // at most half the window
  Extent dil{1};
  bool ceil = false;

  /// The same pool with its stride filled in.
  constexpr Pool normalised() const {
    Pool same = *this;
    if (stride.h == 0) same.stride.h = window.h;
    if (stride.w == 0) same.stride.w = window.w;
    return same;
  }
  /// Whether they pool alike: a stride of 0 equals the window.
  constexpr bool operator==(const Pool& other) const {
    const Pool a = normalised(), b = other.normalised();
    return a.window == b.window && a.stride == b.stride && a.pad == b.pad && a.dil == b.dil &&
           a.ceil == b.ceil;
  }
};
/// A window with the stride of the window, or with another: `max_pool(2)`, `max_pool(3, 2, 1)`.
constexpr Pool max_pool(Extent window) {
  return {window, window};
}
constexpr Pool max_pool(Extent window, Extent stride, Extent pad = {0, 0}) {
  return {window, stride, pad};
}

/// Second outputs. pre = conv + bias (a neuron's charged membrane) and act = act(pre), both
/// [N,P,Q,K] in the output type; idx = p*Q + q of the pooled maximum, int32, shaped like y.
struct Keep {
  bool pre = false, act = false, idx = false;
  constexpr bool any() const { return pre || act || idx; }
  bool operator==(const Keep&) const = default;
};

/// One convolution and its riders. A plain aggregate: write
/// `Stage{.n = 32, .h = 56, .c = 64, .k = 128, .r = 3, .pad = 1, .bias = true, .act = relu,
///  .pool = max_pool(2)}` or `parse_stage("n32h56c64k128r3pad1+bias+relu+max2")`.
/// Shapes: x [N,H,W,C] (or [N,C,H,W]); w [K,R,S,C/groups]; y [N,P',Q',K]. With a neuron a leading
/// T is added to x (unless `hold`) and to y.
struct Stage {
  DType dtype = DType::f32;  // of x
  Index n = 1;
  Index h = 0, w = 0;  // w 0: as h
  Index c = 0, k = 0;
  Index r = 0, s = 0;  // s 0: as r
  Extent stride{1};
  Padding pad{0};
  Extent dil{1};
  Index groups = 1;
  Layout layout = Layout::nhwc;   // of x and y alike
  std::optional<DType> out = {};  // of y; see output_dtype()

  bool bias = false;
  bool norm = false;  // x' = x*scale + shift per input channel, padding is 0 in x'
  Activation act = no_act;
  bool soft = false;  // neuron: v -= th instead of v = 0
  Index t = 1;        // neuron: time steps
  bool hold = false;  // neuron: the same x in every step
  std::optional<Pool> pool = {};
  Keep keep = {};
  bool strict = false;  // only arithmetics that are exact on small integers

  /// Type of y: `out` if set, else that of x, with u8 giving f32 (f16 on a GPU).
  constexpr DType output_dtype(bool gpu = false) const {
    if (out) return *out;
    if (dtype == DType::u8) return gpu ? DType::f16 : DType::f32;
    return dtype;
  }
  /// True where only exact-on-integers arithmetic may be used: `strict`, or any neuron.
  constexpr bool exact() const { return strict || act.is_neuron(); }

  /// The same stage with its defaults filled in: w, s and the pool's stride; no `out` where it is
  /// x's type. What a plan computes with, and what the text form says.
  constexpr Stage normalised() const {
    Stage same = *this;
    if (w == 0) same.w = h;
    if (s == 0) same.s = r;
    if (pool) same.pool = pool->normalised();
    if (dtype != DType::u8 && out == dtype) same.out.reset();
    return same;
  }
  /// Whether they are the same when normalised; equal stages have equal hashes and texts.
  CONVOY_API bool operator==(const Stage& other) const;
};

/// Sizes that follow from a legal stage; all products checked against overflow.
struct Shapes {
  Index p = 0, q = 0;                        // convolution output
  Index out_h = 0, out_w = 0;                // after the pool (p, q without one)
  Index gemm_m = 0, gemm_n = 0, gemm_k = 0;  // implicit GEMM: N*P*Q, K, R*S*C/groups
  Index macs = 0;  // multiply-adds of one time step that a direct convolution does
  Index x_elements = 0, w_elements = 0, y_elements = 0;  // x and y count all time steps
  Index pre_elements = 0;                                // of pre and act, all time steps
};

/// Every reason why the stage is not legal, each naming the field, its value and what is legal.
/// Empty for a legal stage.
CONVOY_API std::vector<std::string> problems(const Stage& stage);
/// Shapes of a legal stage; throws Error with every problem otherwise.
///
///     shapes_of(parse_stage("n1h224c3k64r7stride2pad3+max3s2p1")).out_h  // 56
CONVOY_API Shapes shapes_of(const Stage& stage);

/// Parses the text form (docs/use/stages.md has the grammar); throws Error that points at the place.
/// The result is legal and normalised. parse_stage(to_text(stage)) == stage for every legal stage.
CONVOY_API Stage parse_stage(std::string_view text);
/// Canonical text of the normalised stage: defaults left out, riders in canonical order.
CONVOY_API std::string to_text(const Stage& stage);
/// Stages of a shape list: one a line, '#' starts a comment; errors name file and line.
CONVOY_API std::vector<Stage> read_shape_list(const std::string& path);
CONVOY_API std::size_t hash_of(const Stage& stage);  // std::hash<Stage> calls it

}  // namespace convoy

template <>
struct std::hash<convoy::Stage> {
  std::size_t operator()(const convoy::Stage& stage) const { return convoy::hash_of(stage); }
};
