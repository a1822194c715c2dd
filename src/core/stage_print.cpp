// Writes the text form of a stage, in the canonical order of docs/use/stages.md. stage_text.cpp
// reads it.
#include <fmt/core.h>

#include <charconv>

#include "convoy/stage.hpp"
#include "core/stage_text.hpp"

namespace convoy {
namespace {

// Shortest text that reads back as the same fp32.
std::string number_text(float value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  (void)error;  // 64 characters hold any fp32
  return {buffer, end};
}
std::string extent_text(Extent e) {
  return e.h == e.w ? fmt::format("{}", e.h) : fmt::format("{}x{}", e.h, e.w);
}
std::string padding_text(const Padding& p) {
  if (p.top == p.bottom && p.left == p.right) return extent_text({p.top, p.left});
  return fmt::format("{}x{}x{}x{}", p.top, p.left, p.bottom, p.right);
}
std::string act_text(const Activation& act) {
  using Kind = Activation::Kind;
  switch (act.kind) {
    case Kind::none:
      return "";
    case Kind::relu:
      return "+relu";
    case Kind::relu6:
      return "+relu6";
    case Kind::clip:
      return fmt::format("+clip({},{})", number_text(act.lo()), number_text(act.hi()));
    case Kind::leaky:
      return fmt::format("+leaky({})", number_text(act.slope()));
    case Kind::if_:
      return fmt::format("+if({})", number_text(act.threshold()));
    case Kind::lif:
      return fmt::format("+lif({},{})", number_text(act.tau()), number_text(act.threshold()));
  }
  return "";
}
std::string pool_text(const Pool& pool) {
  std::string text = "+max" + extent_text(pool.window);
  if (pool.stride != pool.window) text += "s" + extent_text(pool.stride);
  if (pool.pad != Extent{0}) text += "p" + extent_text(pool.pad);
  if (pool.dil != Extent{1}) text += "d" + extent_text(pool.dil);
  if (pool.ceil) text += "ceil";
  return text;
}
std::string keep_text(const Keep& keep) {
  std::string items;
  const auto add = [&](bool wanted, const char* item) {
    if (wanted) items += (items.empty() ? "" : ",") + std::string(item);
  };
  add(keep.pre, "pre");
  add(keep.act, "act");
  add(keep.idx, "idx");
  return "+keep(" + items + ")";
}

}  // namespace

std::string to_text(const Stage& given) {
  const Stage stage = given.normalised();
  std::string text;
  if (stage.dtype != DType::f32) text += std::string(to_text(stage.dtype)) + ":";
  text += fmt::format("n{}h{}w{}c{}k{}r{}", stage.n, stage.h, stage.w, stage.c, stage.k, stage.r);
  if (stage.s != stage.r) text += fmt::format("s{}", stage.s);
  if (stage.stride != Extent{1}) text += "stride" + extent_text(stage.stride);
  if (stage.pad != Padding{0}) text += "pad" + padding_text(stage.pad);
  if (stage.dil != Extent{1}) text += "dil" + extent_text(stage.dil);
  if (stage.groups != 1) text += fmt::format("groups{}", stage.groups);
  if (stage.layout == Layout::nchw) text += "nchw";
  if (stage.out) text += fmt::format("out({})", to_text(*stage.out));
  if (stage.bias) text += "+bias";
  if (stage.norm) text += "+norm";
  text += act_text(stage.act);
  if (stage.soft) text += "+soft";
  if (stage.t != 1) text += fmt::format("+t{}", stage.t);
  if (stage.hold) text += "+hold";
  if (stage.pool) text += pool_text(*stage.pool);
  if (stage.keep.any()) text += keep_text(stage.keep);
  if (stage.strict) text += "+strict";
  return text;
}

std::string_view name_of(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none:
      return "none";
    case Activation::Kind::relu:
      return "relu";
    case Activation::Kind::relu6:
      return "relu6";
    case Activation::Kind::clip:
      return "clip";
    case Activation::Kind::leaky:
      return "leaky";
    case Activation::Kind::if_:
      return "if";
    case Activation::Kind::lif:
      return "lif";
  }
  return "?";
}

}  // namespace convoy
