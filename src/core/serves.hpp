// What a family of kernels serves of a stage, and the reasons why a stage is not served.
//
// Each family declares what it serves (`Serves`, one of its KernelFacts), and Kernel::refusals
// refuses everything else. A family's own code refuses only sizes. Nothing here has a default:
// - A member that is added to Stage, Pool, Keep or ChainFacts does not compile until unserved()
//   compares it with a declaration.
// - A member that is added to Serves or ServesChain does not compile until every family has
//   answered.
// - An activation or a type that is added does not compile until serves.cpp has a word for it. A
//   family then serves it only if its declaration says so.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "convoy/tensor.hpp"
#include "core/chain.hpp"

namespace convoy {

/// Why a kernel can't run a stage: complete clauses without a full stop.
using Reasons = std::vector<std::string>;

struct Nothing {};
inline constexpr Nothing nothing;  // the empty set

/// A set of enumerators. It has no default: the empty set is `nothing`.
template <class E>
class Set {
 public:
  constexpr Set(Nothing) {}  // NOLINT: `.keep = nothing` is the point
  template <std::same_as<E>... More>
  constexpr Set(E first, More... more) : bits_((bit(first) | ... | bit(more))) {}  // NOLINT

  constexpr bool has(E one) const { return (bits_ & bit(one)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr Set operator|(Set other) const { return of_bits(bits_ | other.bits_); }
  constexpr Set operator&(Set other) const { return of_bits(bits_ & other.bits_); }
  constexpr Set without(Set other) const { return of_bits(bits_ & ~other.bits_); }

  /// Calls `visit` with each member, in the order of the enumeration.
  template <class Visit>
  constexpr void each(Visit visit) const {
    for (unsigned i = 0; i < 32; ++i)
      if ((bits_ >> i & 1) != 0) visit(static_cast<E>(i));  // NOLINT: a bit is an enumerator
  }

 private:
  static constexpr std::uint32_t bit(E one) {
    return std::uint32_t{1} << static_cast<unsigned>(one);
  }
  static constexpr Set of_bits(std::uint32_t bits) {
    Set set(nothing);
    set.bits_ = bits;
    return set;
  }
  std::uint32_t bits_ = 0;
};

/// Whether a family serves something that a stage has or has not. No default.
class Answer {
 public:
  constexpr Answer(bool yes) : yes_(yes) {}         // NOLINT: `.bias = true` is the point
  constexpr operator bool() const { return yes_; }  // NOLINT: it is one

 private:
  bool yes_;
};

/// Pairs of types: which y may follow which x.
class Types {
 public:
  /// Each of these x with each of these y.
  constexpr Types(Set<DType> x, Set<DType> y) {
    x.each([&](DType from) { y.each([&](DType to) { bits_ |= bit(from, to); }); });
  }
  constexpr bool has(DType x, DType y) const { return (bits_ & bit(x, y)) != 0; }
  constexpr Types operator|(Types other) const { return of_bits(bits_ | other.bits_); }
  constexpr Types operator&(Types other) const { return of_bits(bits_ & other.bits_); }
  /// The types of x that may become this y, and the types that this x may become.
  constexpr Set<DType> x_of(DType y) const {
    Set<DType> found = nothing;
    for (unsigned i = 0; i < most; ++i)
      if (has(static_cast<DType>(i), y)) found = found | static_cast<DType>(i);
    return found;
  }
  constexpr Set<DType> y_of(DType x) const {
    Set<DType> found = nothing;
    for (unsigned i = 0; i < most; ++i)
      if (has(x, static_cast<DType>(i))) found = found | static_cast<DType>(i);
    return found;
  }
  /// Every type of x, and of y.
  constexpr Set<DType> x() const {
    Set<DType> found = nothing;
    for (unsigned i = 0; i < most; ++i) found = found | x_of(static_cast<DType>(i));
    return found;
  }
  constexpr Set<DType> y() const {
    Set<DType> found = nothing;
    for (unsigned i = 0; i < most; ++i) found = found | y_of(static_cast<DType>(i));
    return found;
  }

 private:
  static constexpr std::uint64_t bit(DType x, DType y) {
    return std::uint64_t{1} << (8 * static_cast<unsigned>(x) + static_cast<unsigned>(y));
  }
  static constexpr Types of_bits(std::uint64_t bits) {
    Types types(nothing, nothing);
    types.bits_ = bits;
    return types;
  }
  static constexpr unsigned most = 8;  // types, each with a byte of the bits
  std::uint64_t bits_ = 0;
};

/// The pools that families tell apart.
enum class PoolForm : std::uint8_t {
  none,             // the stage has no pool
  max2,             // windows of 2x2, 2 pixels apart, without padding, dilation and ceil
  max2ceil_inside,  // the same with ceil; no window reaches beyond the plane
  max2ceil_beyond,  // the same with ceil; the last windows reach beyond the plane
  max3s2p1,         // windows of 3x3, 2 pixels apart, with a padding of 1, without ceil
  other
};
PoolForm form_of_pool(const Stage& stage);

/// The second outputs: the members of Keep.
enum class Kept : std::uint8_t { pre, act, idx };

/// What a family serves of a stage beside its sizes. In a chain it holds for each stage.
struct Serves {
  Types types;
  Set<Layout> layouts;
  Answer strides;   // another stride than 1x1
  Answer dilation;  // another dilation than 1x1
  Answer groups;    // more than one group
  Answer bias, norm;
  Set<Activation::Kind> acts;  // with `none`: stages without an activation
  Answer soft, hold;           // of neurons
  Set<PoolForm> pools;         // with `none`: stages without a pool
  /// Whether the family pools before it activates. It then serves a pool only with an activation
  /// that gives the same result after it (math::may_pool_first). Spikes are always pooled after.
  Answer pools_first;
  Set<Kept> keep;
};

/// What a family that runs chains serves of a chain beside its stages: the members of ChainFacts.
struct ServesChain {
  Answer constants, binary;
  Answer x_steps;  // more than one time step in x
  Answer mean;
};

/// The activations that every epilogue computes: a clamp, or a slope below 0. A family whose code
/// computes a further one says so in its own declaration.
inline constexpr Set<Activation::Kind> elementwise{Activation::Kind::none, Activation::Kind::relu,
                                                   Activation::Kind::relu6, Activation::Kind::clip,
                                                   Activation::Kind::leaky};
inline constexpr Set<Activation::Kind> neurons{Activation::Kind::if_, Activation::Kind::lif};

inline constexpr Set<PoolForm> none_or_max2{PoolForm::none, PoolForm::max2};
/// 2x2 windows that lie inside the plane, whether or not the pool has ceil.
inline constexpr Set<PoolForm> none_or_whole_max2 = none_or_max2 | PoolForm::max2ceil_inside;
inline constexpr Set<PoolForm> none_or_any_max2 = none_or_whole_max2 | PoolForm::max2ceil_beyond;
inline constexpr Set<PoolForm> any_pool = none_or_any_max2 | PoolForm::max3s2p1 | PoolForm::other;

inline constexpr Set<Kept> every_output{Kept::pre, Kept::act, Kept::idx};

inline constexpr Types halves =
    Types(DType::f16, DType::f16) | Types(DType::bf16, DType::bf16);  // y has the type of x

/// All that a stage can ask for today. What is added to a stage is added here when a kernel that
/// serves everything, such as `general`, has it.
inline constexpr Serves serves_everything{
    .types = {{DType::f32, DType::f16, DType::bf16, DType::u8},
              {DType::f32, DType::f16, DType::bf16}},
    .layouts = {Layout::nhwc, Layout::nchw},
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = true,
    .acts = elementwise | neurons,
    .soft = true,
    .hold = true,
    .pools = any_pool,
    .pools_first = false,
    .keep = every_output,
};

inline constexpr ServesChain serves_every_chain{
    .constants = true, .binary = true, .x_steps = true, .mean = true};

/// Every reason why a legal stage is not served, in the words "WHAT is FOUND, expected SERVED".
/// `device` decides the type of y.
Reasons unserved(const Stage& stage, const Serves& serves, DeviceKind device);
Reasons unserved(const ChainFacts& chain, const ServesChain& serves);

/// Adds the reasons that `why` does not have. A kernel that runs another one inside has some of the
/// inner kernel's reasons already.
void add_missing(Reasons& why, Reasons reasons);

}  // namespace convoy
