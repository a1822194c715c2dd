// Reads the text form of a stage: the grammar in docs/use/stages.md. stage_print.cpp writes it.
#include "core/stage_text.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "convoy/error.hpp"
#include "core/dtype.hpp"
#include "core/failure.hpp"
#include "core/printable.hpp"

namespace convoy {
namespace {

constexpr std::string_view planned[] = {"add", "silu", "gelu", "hswish", "avg", "gap"};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Stage parse() {
    if (const std::size_t space = text_.find_first_of(" \t"); space != std::string_view::npos)
      fail_at(space, "found a space, expected none in a stage");
    parse_dtype();
    while (!at_end() && peek() != '+') parse_axis_or_option();
    while (take("+")) parse_rider();
    if (!at_end()) fail("expected '+' and a rider, or the end");
    if (given_.h && !given_.w) stage_.w = stage_.h;
    if (given_.r && !given_.s) stage_.s = stage_.r;
    return stage_;
  }
  const GivenAxes& given() const { return given_; }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(std::size_t place, const std::string& what) const {
    throw Error(fmt::format("stage \"{}\", column {}: {}", printable(text_), place + 1, what));
  }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view token) {
    if (text_.substr(at_).substr(0, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  std::string_view take_word() {
    const std::size_t begin = at_;
    while (!at_end() && peek() >= 'a' && peek() <= 'z') ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Index integer() {
    Index value = 0;
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    if (begin == end || *begin < '0' || *begin > '9') fail("expected a whole number");
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc()) fail("the number does not fit in 64 bits");
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }
  Extent extent() {
    const Index h = integer();
    return take("x") ? Extent{h, integer()} : Extent{h};
  }
  Padding padding() {
    const Index first = integer();
    if (!take("x")) return Padding{first};
    const Index second = integer();
    if (!take("x")) return Padding{first, second};
    const Index third = integer();
    if (!take("x"))
      fail("expected pad<all>, pad<height>x<width> or pad<top>x<left>x<bottom>x<right>");
    return {first, second, third, integer()};
  }
  float number() {
    float value = 0;
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error == std::errc::result_out_of_range) fail("the number does not fit in fp32");
    if (error != std::errc() || std::isnan(value)) fail("expected a number");
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }

  void parse_dtype() {
    const std::size_t colon = text_.find(':');
    if (colon == std::string_view::npos) return;
    stage_.dtype = dtype(text_.substr(0, colon));
    given_.dtype = true;
    at_ = colon + 1;
  }
  DType dtype(std::string_view word) const {
    for (const DType type : all_types)
      if (word == to_text(type) && facts_of(type).input) return type;
    fail(fmt::format("unknown type '{}', expected f32, f16, bf16 or u8", printable(word, 32)));
  }

  // A keyword once: the second is an error.
  void once(bool& seen, std::size_t place, std::string_view what) const {
    if (seen) fail_at(place, fmt::format("'{}' is given twice", what));
    seen = true;
  }
  void axis(bool& seen, Index& field, std::size_t place, std::string_view what) {
    once(seen, place, what);
    field = integer();
    if (field < 1) fail_at(place, fmt::format("{} is {}, expected at least 1", what, field));
  }

  void parse_axis_or_option() {
    const std::size_t place = at_;
    // The longest keyword wins: 'stride' before 's', 'nchw' before 'n'.
    if (take("stride")) {
      once(stride_, place, "stride");
      stage_.stride = extent();
    } else if (take("groups")) {
      once(groups_, place, "groups");
      stage_.groups = integer();
    } else if (take("nchw")) {
      once(nchw_, place, "nchw");
      stage_.layout = Layout::nchw;
    } else if (take("pad")) {
      once(pad_, place, "pad");
      stage_.pad = padding();
    } else if (take("dil")) {
      once(dil_, place, "dil");
      stage_.dil = extent();
    } else if (take("out(")) {
      once(out_, place, "out");
      const std::size_t close = text_.find(')', at_);
      if (close == std::string_view::npos) fail("expected ')' after the output's type");
      stage_.out = dtype(text_.substr(at_, close - at_));
      at_ = close + 1;
    } else if (take("n")) {
      axis(given_.n, stage_.n, place, "n");
    } else if (take("h")) {
      axis(given_.h, stage_.h, place, "h");
    } else if (take("w")) {
      axis(given_.w, stage_.w, place, "w");
    } else if (take("c")) {
      axis(given_.c, stage_.c, place, "c");
    } else if (take("k")) {
      axis(given_.k, stage_.k, place, "k");
    } else if (take("r")) {
      axis(given_.r, stage_.r, place, "r");
    } else if (take("s")) {
      axis(given_.s, stage_.s, place, "s");
    } else {
      fail(
          "expected an axis (n h w c k r s), an option (stride pad dil groups nchw out) or '+' and "
          "a rider");
    }
  }

  void set_act(std::size_t place, Activation act) {
    if (act_) fail_at(place, "found a second activation, expected at most one");
    act_ = true;
    stage_.act = act;
  }
  void comma() {
    if (!take(",")) fail("expected ','");
  }
  void close() {
    if (!take(")")) fail("expected ')'");
  }

  void parse_rider() {
    const std::size_t place = at_;
    const std::string_view word = take_word();
    if (word == "bias") {
      once(stage_.bias, place, word);
    } else if (word == "norm") {
      once(stage_.norm, place, word);
    } else if (word == "relu") {
      set_act(place, take("6") ? relu6 : relu);
    } else if (word == "clip") {
      parse_clip(place);
    } else if (word == "leaky") {
      if (!take("(")) fail("expected leaky(slope)");
      const float slope = number();
      close();
      set_act(place, leaky(slope));
    } else if (word == "if") {
      float th = 1;
      if (take("(")) {
        th = number();
        close();
      }
      set_act(place, integrate_fire(th));
    } else if (word == "lif") {
      parse_lif(place);
    } else if (word == "soft") {
      once(stage_.soft, place, word);
    } else if (word == "t") {
      once(t_, place, word);
      stage_.t = integer();
    } else if (word == "hold") {
      once(stage_.hold, place, word);
    } else if (word == "max") {
      parse_pool(place);
    } else if (word == "keep") {
      parse_keep(place);
    } else if (word == "strict") {
      once(stage_.strict, place, word);
    } else {
      for (const std::string_view later : planned)
        if (word == later)
          fail_at(place, fmt::format("rider '{}' is not supported yet, expected one of: bias norm "
                                     "relu relu6 clip leaky if lif soft t hold max keep strict. "
                                     "Leave it out and compute it on the result",
                                     word));
      fail_at(place,
              fmt::format("unknown rider '{}', expected bias norm relu relu6 clip leaky if lif "
                          "soft t hold max keep strict",
                          word.substr(0, 32)));
    }
  }
  void parse_clip(std::size_t place) {
    if (!take("(")) fail("expected clip(low,high)");
    const float low = number();
    comma();
    const float high = number();
    close();
    set_act(place, clip_to(low, high));
  }
  void parse_lif(std::size_t place) {
    float tau = 2, th = 1;
    if (take("(")) {
      tau = number();
      if (take(",")) th = number();
      close();
    }
    set_act(place, lif(tau, th));
  }
  Extent pool_stride() {  // 0 stands for the window in a Pool, but not in a text
    const std::size_t place = at_;
    const Extent stride = extent();
    if (stride.h < 1 || stride.w < 1)
      fail_at(place,
              fmt::format("the pool's stride is {}x{}, expected at least 1", stride.h, stride.w));
    return stride;
  }
  void parse_pool(std::size_t place) {
    if (stage_.pool) fail_at(place, "found a second pool, expected at most one");
    Pool pool;
    pool.window = pool.stride = extent();
    if (take("s")) pool.stride = pool_stride();
    if (take("p")) pool.pad = extent();
    if (take("d")) pool.dil = extent();
    pool.ceil = take("ceil");
    stage_.pool = pool;
  }
  void parse_keep(std::size_t place) {
    if (stage_.keep.any()) fail_at(place, "'keep' is given twice");
    if (!take("(")) fail("expected keep(...) with one or more of pre, act and idx");
    do {
      const std::size_t item_place = at_;
      const std::string_view item = take_word();
      if (item == "pre")
        once(stage_.keep.pre, item_place, item);
      else if (item == "act")
        once(stage_.keep.act, item_place, item);
      else if (item == "idx")
        once(stage_.keep.idx, item_place, item);
      else
        fail_at(item_place, "expected pre, act or idx");
    } while (take(","));
    close();
  }

  std::string_view text_;
  GivenAxes given_;
  std::size_t at_ = 0;
  Stage stage_;
  bool stride_ = false, groups_ = false, nchw_ = false, pad_ = false, dil_ = false, out_ = false,
       act_ = false, t_ = false;
};

}  // namespace

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

Stage parse_stage_parts(std::string_view text, GivenAxes& given) {
  Parser parser(trim(text));
  Stage stage = parser.parse();
  given = parser.given();
  return stage;
}

Stage parse_stage(std::string_view text) try {
  GivenAxes given;
  const Stage stage = parse_stage_parts(text, given);
  const auto missing = [&](bool there, const char* axis) {
    if (!there)
      throw Error(
          fmt::format("stage \"{}\": {} is missing, expected n<N>h<H>[w<W>]c<C>k<K>r<R>[s<S>], "
                      "for example n1h56c64k128r3pad1+bias+relu+max2",
                      printable(trim(text)), axis));
  };
  missing(given.n, "n");
  missing(given.h, "h");
  missing(given.c, "c");
  missing(given.k, "k");
  missing(given.r, "r");
  try {
    shapes_of(stage);
  } catch (const Error& error) {
    throw Error(fmt::format("stage \"{}\": {}", printable(trim(text)), error.what()));
  }
  return stage.normalised();
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
