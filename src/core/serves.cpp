#include "core/serves.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/stage_text.hpp"
#include "math/activation.hpp"

namespace convoy {
namespace {

constexpr std::string_view none = "none";

// No switch here has a default. An enumerator that was added stops the build at this place: give it
// a word, and decide which declarations serve it (the sets in serves.hpp, and those of families).
std::string_view word(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::u8:
    case DType::i32:
      return to_text(type);
  }
  return "?";
}
std::string_view word(Layout layout) {
  switch (layout) {
    case Layout::nhwc:
      return "nhwc";
    case Layout::nchw:
      return "nchw";
  }
  return "?";
}
std::string_view word(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none:
    case Activation::Kind::relu:
    case Activation::Kind::relu6:
    case Activation::Kind::clip:
    case Activation::Kind::leaky:
    case Activation::Kind::if_:
    case Activation::Kind::lif:
      return name_of(kind);
  }
  return "?";
}
std::string_view word(Kept output) {
  switch (output) {
    case Kept::pre:
      return "pre";
    case Kept::act:
      return "act";
    case Kept::idx:
      return "idx";
  }
  return "?";
}

/// Adds a word to "a, b or c", of which `left` words are still to come; `last` is " or ".
void add_word(std::string& text, std::string_view word, int left, std::string_view last) {
  if (!text.empty()) text += left > 0 ? ", " : last;
  text += word;
}
/// "none" for the empty set.
template <class E>
std::string words(Set<E> set, std::string_view last) {
  std::string text;
  int left = set.size();
  set.each([&](E one) { add_word(text, word(one), --left, last); });
  return text.empty() ? std::string(none) : text;
}

std::string in_words(const Extent& extent) {
  return fmt::format("{}x{}", extent.h, extent.w);
}
std::string in_words(const std::optional<Pool>& given) {
  if (!given) return std::string(none);
  const auto [window, stride, pad, dil, ceil] = given->normalised();
  std::string text = fmt::format("max {} with stride {}", in_words(window), in_words(stride));
  if (pad != Extent(0)) text += fmt::format(", padding {}", in_words(pad));
  if (dil != Extent(1)) text += fmt::format(", dilation {}", in_words(dil));
  return text + (ceil ? ", ceil" : "");
}
std::string_view in_words(std::string_view text) {
  return text;
}
std::string in_words(Index number) {
  return std::to_string(number);
}
template <class E>
requires std::is_enum_v<E> std::string_view in_words(E one) {
  return word(one);
}
template <class E>
std::string in_words(Set<E> set) {
  return words(set, " or ");
}
std::string in_words(Set<PoolForm> given) {
  const bool inside = given.has(PoolForm::max2ceil_inside),
             beyond = given.has(PoolForm::max2ceil_beyond);
  // Those with ceil are said with the one without.
  const Set<PoolForm> pools = given.without({PoolForm::max2ceil_inside, PoolForm::max2ceil_beyond});
  const auto word_of = [&](PoolForm form) -> std::string_view {
    switch (form) {
      case PoolForm::none:
        return none;
      case PoolForm::max2:
      case PoolForm::max2ceil_inside:
      case PoolForm::max2ceil_beyond:
        return beyond   ? "max 2x2 with stride 2"
               : inside ? "max 2x2 with stride 2 and no window beyond the plane"
                        : "max 2x2 with stride 2 and no ceil";
      case PoolForm::max3s2p1:
        return "max 3x3 with stride 2, padding 1 and no ceil";
      case PoolForm::other:
        return "any other";
    }
    return "?";
  };
  std::string text;
  int left = pools.size();
  pools.each([&](PoolForm form) { add_word(text, word_of(form), --left, " or "); });
  return text;
}

Set<Kept> outputs_of(const Keep& keep) {
  const auto& [pre, act, idx] = keep;
  Set<Kept> kept = nothing;
  if (pre) kept = kept | Kept::pre;
  if (act) kept = kept | Kept::act;
  if (idx) kept = kept | Kept::idx;
  return kept;
}

/// Nothing is put into words unless it is a reason: planning compares each stage with each kernel
/// several times.
class Comparison {
 public:
  template <class Found, class Expected>
  void expect(bool served, std::string_view what, const Found& found, const Expected& expected) {
    if (!served) add(what, in_words(found), in_words(expected));
  }
  void expect_none(bool served, std::string_view what) {
    expect(served, what, std::string_view("asked for"), none);
  }
  void expect_types(DType x, DType y, const Types& types) {
    if (types.has(x, y)) return;
    const bool takes_x = types.x().has(x);
    expect(takes_x, "x", x, types.x());
    const Set<DType> to = takes_x ? types.y_of(x) : types.y();
    expect(to.has(y), "y", y, to);
  }
  void expect_kept(Set<Kept> kept, Set<Kept> served) {
    if (!kept.without(served).empty()) add("keep", words(kept, " and "), words(served, " and "));
  }
  Reasons all() { return std::move(why_); }

 private:
  void add(std::string_view what, std::string_view found, std::string_view expected) {
    constexpr std::string_view is = " is ", wanted = ", expected ";
    std::string& reason = why_.emplace_back();
    reason.reserve(what.size() + is.size() + found.size() + wanted.size() + expected.size());
    reason.append(what).append(is).append(found).append(wanted).append(expected);
  }

  Reasons why_;
};

}  // namespace

PoolForm form_of_pool(const Stage& stage) {
  if (!stage.pool) return PoolForm::none;
  const auto [window, stride, pad, dil, ceil] = stage.pool->normalised();
  if (stride != Extent(2) || dil != Extent(1)) return PoolForm::other;
  if (window == Extent(3) && pad == Extent(1) && !ceil) return PoolForm::max3s2p1;
  if (window != Extent(2) || pad != Extent(0)) return PoolForm::other;
  if (!ceil) return PoolForm::max2;
  const Shapes shapes = shapes_of(stage);
  const bool inside = 2 * shapes.out_h <= shapes.p && 2 * shapes.out_w <= shapes.q;
  return inside ? PoolForm::max2ceil_inside : PoolForm::max2ceil_beyond;
}

Reasons unserved(const Stage& stage, const Serves& serves, DeviceKind device) {
  // Names every member. Families refuse sizes by themselves: n, h, w, c, k, r, s, pad and t.
  // `strict` is compared with KernelFacts::exact (plan/select.cpp), `out` is part of output_dtype.
  const auto& [dtype, n, h, w, c, k, r, s, stride, pad, dil, groups, layout, out, bias, norm, act,
               soft, t, hold, pool, keep, strict] = stage;
  Comparison compare;
  compare.expect_types(dtype, stage.output_dtype(device == DeviceKind::cuda), serves.types);
  compare.expect(serves.layouts.has(layout), "the layout", layout, serves.layouts);
  compare.expect(serves.strides || stride == Extent(1), "the stride", stride, Extent(1));
  compare.expect(serves.dilation || dil == Extent(1), "the dilation", dil, Extent(1));
  compare.expect(serves.groups || groups == 1, "groups", groups, Index{1});
  compare.expect_none(serves.bias || !bias, "bias");
  compare.expect_none(serves.norm || !norm, "norm");
  compare.expect(serves.acts.has(act.kind), "the activation", act.kind, serves.acts);
  compare.expect_none(serves.soft || !soft, "soft");
  compare.expect_none(serves.hold || !hold, "hold");
  compare.expect(serves.pools.has(form_of_pool(stage)), "the pool", pool, serves.pools);
  compare.expect(
      !serves.pools_first || !pool || act.is_neuron() || math::may_pool_first(act),
      "the activation before a pool", act.kind,
      std::string_view("one that never decreases and makes no NaN: the kernel pools first"));
  compare.expect_kept(outputs_of(keep), serves.keep);
  return compare.all();
}

Reasons unserved(const ChainFacts& chain, const ServesChain& serves) {
  const auto& [constants, binary, x_steps, mean] = chain;
  Comparison compare;
  compare.expect_none(serves.constants || !constants, "a chain with constants");
  compare.expect_none(serves.binary || !binary, "a chain that reads spikes");
  compare.expect(serves.x_steps || x_steps == 1, "the number of time steps in x", x_steps,
                 Index{1});
  compare.expect_none(serves.mean || !mean, "a mean over the time steps");
  return compare.all();
}

void add_missing(Reasons& why, Reasons reasons) {
  for (std::string& reason : reasons)
    if (std::find(why.begin(), why.end(), reason) == why.end()) why.push_back(std::move(reason));
}

}  // namespace convoy
