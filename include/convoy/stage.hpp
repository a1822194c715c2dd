/// @file
/// The computation: one convolution with its bias, activation or neuron, and max-pool.
///
///     y = pool( act( conv(x, w) + bias ) )
///
/// A `Stage` does not say how or on which device it is computed; a `Plan` (plan.hpp) does.
/// docs/use/stages.md has the text form of a stage and the meaning of each part. All functions here
/// may be called from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/export.hpp"

/// Convoy: convolutions and all that follows them as one kernel, on CPUs and NVIDIA GPUs.
namespace convoy {

/// A size, a position or a stride in elements. Signed, 64 bits.
using Index = std::int64_t;

/// The type of a tensor's elements.
enum class DType : std::uint8_t {
  f32,   ///< IEEE 754 binary32
  f16,   ///< IEEE 754 binary16
  bf16,  ///< bfloat16: the upper half of an f32
  u8,    ///< unsigned 8-bit integers: pixels from 0 to 255; a type of images only
  i32    ///< signed 32-bit integers: labels and the indices of a pool
};
/// The name of a type, for example "f32"; "?" for a number that is no type.
CONVOY_API std::string_view to_text(DType dtype);
/// The number of bytes of one element; 4 for a number that is no type.
CONVOY_API std::size_t size_of(DType dtype);

/// The order of the axes of images.
enum class Layout : std::uint8_t {
  nhwc,  ///< [N,H,W,C]: the channels of a pixel are neighbours, PyTorch's channels_last
  nchw   ///< [N,C,H,W]: each channel is a plane, PyTorch's default
};

/// The height and width of a stride, a dilation or a window, in pixels.
struct Extent {
  Index h = 1,  ///< the height
      w = 1;    ///< the width
  /// One number for both: `.stride = 2`.
  constexpr Extent(Index both = 1) : h(both), w(both) {}  // NOLINT: `.stride = 2` is the point
  /// The height first.
  constexpr Extent(Index h_, Index w_) : h(h_), w(w_) {}
  /// Whether height and width are equal.
  bool operator==(const Extent&) const = default;
};

/// The number of rows and columns of zeros around an image.
struct Padding {
  Index top = 0,   ///< rows above the image
      left = 0,    ///< columns before the image
      bottom = 0,  ///< rows below the image
      right = 0;   ///< columns after the image
  /// One number for all four sides: `.pad = 1`.
  constexpr Padding(Index all = 0) : top(all), left(all), bottom(all), right(all) {}  // NOLINT
  /// `h` rows above and below, `w` columns before and after.
  constexpr Padding(Index h, Index w) : top(h), left(w), bottom(h), right(w) {}
  /// Four numbers: top, left, bottom, right.
  constexpr Padding(Index t, Index l, Index b, Index r) : top(t), left(l), bottom(b), right(r) {}
  /// Whether all four sides are equal.
  bool operator==(const Padding&) const = default;
};

/// An activation or a spiking neuron: the function that is applied to each element of conv + bias.
/// The constants and functions after this struct make one: `Stage{..., .act = relu}`, `.act =
/// clip_to(0, 1)`, `.act = lif(2, 0.5F)`.
struct Activation {
  /// The function. x is an element of conv + bias; v is a neuron's membrane.
  enum class Kind : std::uint8_t {
    none,   ///< x
    relu,   ///< max(x, 0)
    relu6,  ///< min(max(x, 0), 6)
    clip,   ///< min(max(x, lo), hi)
    leaky,  ///< x if x >= 0, slope*x otherwise
    if_,    ///< integrate and fire: v += x; a spike (1) if v >= threshold, 0 otherwise
    lif,    ///< leaky integrate and fire: v += (x - v)/tau; a spike (1) if v >= threshold
  };
  Kind kind = Kind::none;  ///< the function; do not change it by hand, see consistent()

  /// No activation.
  constexpr Activation() = default;
  /// A kind without parameters: none, relu or relu6.
  constexpr explicit Activation(Kind kind_) : kind(kind_) {}

  /// Whether it is a spiking neuron, `if_` or `lif`. A neuron has time steps and a membrane.
  constexpr bool is_neuron() const { return kind == Kind::if_ || kind == Kind::lif; }
  /// The lower bound of `clip`; 0 for every other kind.
  constexpr float lo() const { return kind == Kind::clip ? first_ : 0; }
  /// The upper bound of `clip`; 0 for every other kind.
  constexpr float hi() const { return kind == Kind::clip ? second_ : 0; }
  /// The slope of `leaky` below 0; 0 for every other kind.
  constexpr float slope() const { return kind == Kind::leaky ? first_ : 0; }
  /// The time constant of `lif`; 0 for every other kind.
  constexpr float tau() const { return kind == Kind::lif ? first_ : 0; }
  /// The threshold of a neuron; 0 for every other kind.
  constexpr float threshold() const {
    return kind == Kind::lif ? second_ : kind == Kind::if_ ? first_ : 0;
  }
  /// Whether all parameters belong to the kind. It is false if `kind` was changed by hand and a
  /// parameter of the former kind is left over; such a stage is illegal.
  constexpr bool consistent() const {
    const int parameters = kind == Kind::clip || kind == Kind::lif    ? 2
                           : kind == Kind::leaky || kind == Kind::if_ ? 1
                                                                      : 0;
    return (parameters > 0 || first_ == 0) && (parameters > 1 || second_ == 0);
  }
  /// Whether kind and parameters are equal.
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
/// No activation.
inline constexpr Activation no_act{};
/// max(x, 0)
inline constexpr Activation relu{Activation::Kind::relu};
/// min(max(x, 0), 6)
inline constexpr Activation relu6{Activation::Kind::relu6};
/// min(max(x, lo), hi) with lo ≤ hi. Either bound may be infinite.
constexpr Activation clip_to(float lo, float hi) {
  return {Activation::Kind::clip, lo, hi};
}
/// x if x ≥ 0, slope·x otherwise. The slope must be finite.
constexpr Activation leaky(float slope) {
  return {Activation::Kind::leaky, slope};
}
/// An integrate-and-fire neuron: v += x, and a spike if v ≥ th. The threshold must be finite.
constexpr Activation integrate_fire(float th = 1) {
  return {Activation::Kind::if_, th};
}
/// A leaky integrate-and-fire neuron: v += (x − v)/tau, and a spike if v ≥ th. `tau` must be finite
/// and at least 1. The charge is that of SpikingJelly's LIFNode with decay_input and v_reset = 0.
constexpr Activation lif(float tau = 2, float th = 1) {
  return {Activation::Kind::lif, tau, th};
}

/// A max-pool as PyTorch's MaxPool2d defines it. Pixels outside the image count as -inf. NaN wins.
/// The first maximum in row-major order gives the index.
struct Pool {
  Extent window{2};   ///< height and width of the window
  Extent stride{0};   ///< distance between windows; 0: the window
  Extent pad{0};      ///< padding on both sides, at most half the window
  Extent dil{1};      ///< distance between the pixels of a window
  bool ceil = false;  ///< PyTorch's ceil_mode: round the number of windows up

  /// The same pool with its stride filled in.
  constexpr Pool normalised() const {
    Pool same = *this;
    if (stride.h == 0) same.stride.h = window.h;
    if (stride.w == 0) same.stride.w = window.w;
    return same;
  }
  /// Whether both pools give the same result: a stride of 0 equals the window.
  constexpr bool operator==(const Pool& other) const {
    const Pool a = normalised(), b = other.normalised();
    return a.window == b.window && a.stride == b.stride && a.pad == b.pad && a.dil == b.dil &&
           a.ceil == b.ceil;
  }
};
/// A pool whose stride is its window: `max_pool(2)`.
constexpr Pool max_pool(Extent window) {
  return {window, window};
}
/// A pool with a stride and, if given, a padding: `max_pool(3, 2, 1)`.
constexpr Pool max_pool(Extent window, Extent stride, Extent pad = {0, 0}) {
  return {window, stride, pad};
}

/// The second outputs that a stage writes beside y; training needs them.
struct Keep {
  bool pre = false,  ///< conv + bias, or a neuron's charged membrane: Operands::pre
      act = false,   ///< the activation's output before the pool: Operands::act
      idx = false;   ///< the position of each pooled maximum: Operands::idx
  /// Whether the stage has a second output.
  constexpr bool any() const { return pre || act || idx; }
  /// Whether the same outputs are kept.
  bool operator==(const Keep&) const = default;
};

/// One convolution with its riders: bias, norm, activation or neuron, pool, second outputs. A plain
/// aggregate, written with designated initialisers or parsed from text:
///
///     const Stage stage{.n = 32, .h = 56, .c = 64, .k = 128, .r = 3, .pad = 1, .bias = true,
///                       .act = relu, .pool = max_pool(2)};
///     const Stage same = parse_stage("n32h56c64k128r3pad1+bias+relu+max2");
///
/// Shapes: x [N,H,W,C], w [K,R,S,C/groups], y [N,P',Q',K]; see Shapes for P' and Q'. With
/// Layout::nchw x is [N,C,H,W] and y is [N,K,P',Q']. A neuron adds a leading axis T to y and,
/// unless `hold` is set, to x.
///
/// Sizes are from 1 to 2^31 - 1, and every product of them is at most 2^60. problems() lists all
/// that is illegal in a stage. docs/use/stages.md explains each part with an example.
struct Stage {
  DType dtype = DType::f32;       ///< type of x: f32, f16, bf16 or u8
  Index n = 1;                    ///< images
  Index h = 0,                    ///< height of x
      w = 0;                      ///< width of x; 0: that of h
  Index c = 0,                    ///< input channels
      k = 0;                      ///< filters: output channels
  Index r = 0,                    ///< height of the filters
      s = 0;                      ///< width of the filters; 0: that of r
  Extent stride{1};               ///< distance between two positions of the filter
  Padding pad{0};                 ///< zeros around x
  Extent dil{1};                  ///< distance between two elements of the filter, in pixels
  Index groups = 1;               ///< groups of channels that are convolved apart; divides c and k
  Layout layout = Layout::nhwc;   ///< order of the axes of x and of y
  std::optional<DType> out = {};  ///< type of y: f32, f16 or bf16; empty: see output_dtype()

  bool bias = false;        ///< adds Operands::bias, one f32 number per filter
  bool norm = false;        ///< reads x' = x*scale + shift per input channel; padding is 0 in x'
  Activation act = no_act;  ///< the activation or neuron
  bool soft = false;        ///< neurons: the reset is v -= threshold instead of v = 0
  Index t = 1;              ///< neurons: the number of time steps
  bool hold = false;        ///< neurons: every time step reads the same x, which has no axis T
  std::optional<Pool> pool = {};  ///< the max-pool; empty: none
  Keep keep = {};                 ///< the second outputs
  bool strict = false;            ///< admits only algorithms that are exact on small integers

  /// The type of y: `out` if it is set, otherwise that of x. For u8 images it is f32 on a CPU and
  /// f16 on a GPU (`gpu`).
  constexpr DType output_dtype(bool gpu = false) const {
    if (out) return *out;
    if (dtype == DType::u8) return gpu ? DType::f16 : DType::f32;
    return dtype;
  }
  /// Whether only algorithms that are exact on small integers may be used: `strict` is set, or the
  /// stage has a neuron.
  constexpr bool exact() const { return strict || act.is_neuron(); }

  /// The same stage with its defaults filled in: w, s and the pool's stride. `out` is cleared if it
  /// is the type of x. A Plan computes this form, and to_text() writes it.
  constexpr Stage normalised() const {
    Stage same = *this;
    if (w == 0) same.w = h;
    if (s == 0) same.s = r;
    if (pool) same.pool = pool->normalised();
    if (dtype != DType::u8 && out == dtype) same.out.reset();
    return same;
  }
  /// Whether the normalised stages are equal. Equal stages have equal hashes and texts.
  CONVOY_API bool operator==(const Stage& other) const;
};

/// The sizes that follow from a legal stage. No product overflows.
struct Shapes {
  Index p = 0,             ///< height of the convolution's output
      q = 0;               ///< width of the convolution's output
  Index out_h = 0,         ///< P', the height of y: after the pool; p without a pool
      out_w = 0;           ///< Q', the width of y: after the pool; q without a pool
  Index gemm_m = 0,        ///< rows of the implicit GEMM: N*P*Q
      gemm_n = 0,          ///< columns of the implicit GEMM: K
      gemm_k = 0;          ///< depth of the implicit GEMM: R*S*C/groups
  Index macs = 0;          ///< multiply-adds of a direct convolution, one time step
  Index x_elements = 0,    ///< elements of x, all time steps
      w_elements = 0,      ///< elements of the filters
      y_elements = 0;      ///< elements of y, all time steps
  Index pre_elements = 0;  ///< elements of `pre`, and of `act`, all time steps
};

/// Every reason why the stage is illegal. Each names the field, its value and the legal values. The
/// list is empty for a legal stage.
CONVOY_API std::vector<std::string> problems(const Stage& stage);
/// The sizes of a legal stage. Throws Error with all of problems() if the stage is illegal.
///
///     shapes_of(parse_stage("n1h224c3k64r7stride2pad3+max3s2p1")).out_h  // 56
CONVOY_API Shapes shapes_of(const Stage& stage);

/// Parses the text form of a stage; docs/use/stages.md has the grammar. The result is legal and
/// normalised, and parse_stage(to_text(stage)) == stage for every legal stage. Throws Error with
/// the column of a mistake, or with all of problems().
CONVOY_API Stage parse_stage(std::string_view text);
/// The canonical text of the normalised stage: without defaults, riders in a fixed order.
CONVOY_API std::string to_text(const Stage& stage);
/// Reads a shape list: a text file with one stage per line, at least one; '#' starts a comment.
/// Throws Error with file and line if a line is no stage, and if the file can't be read or is
/// larger than 16 MiB.
CONVOY_API std::vector<Stage> read_shape_list(const std::string& path);
/// A hash of the normalised stage; std::hash<Stage> calls it.
CONVOY_API std::size_t hash_of(const Stage& stage);

}  // namespace convoy

/// @cond
/// Lets a Stage be the key of std::unordered_map and std::unordered_set.
template <>
struct std::hash<convoy::Stage> {
  /// convoy::hash_of(stage)
  std::size_t operator()(const convoy::Stage& stage) const { return convoy::hash_of(stage); }
};
/// @endcond
