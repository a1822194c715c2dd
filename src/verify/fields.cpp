#include "verify/fields.hpp"

#include <algorithm>
#include <optional>

#include "verify/draw.hpp"

namespace convoy::verify {
namespace {

// Rows of the padded image that a filter reaches over.
Index reach(Index taps, Index dil) {
  return dil * (taps - 1) + 1;
}
Pool& pool(Stage& s) {
  if (!s.pool) s.pool = max_pool(2);
  return *s.pool;
}
void need_neuron(Random& random, Stage& s) {
  if (!s.act.is_neuron())
    s.act = random.chance(0.5) ? integrate_fire(random.pick({1.0F, 0.25F})) : lif(2, 0.5F);
}
// A plane for the window's reach.
void room_for_window(Stage& s, const Pool& p) {
  const Index rows = reach(p.window.h, p.dil.h) - 2 * p.pad.h;
  const Index columns = reach(p.window.w, p.dil.w) - 2 * p.pad.w;
  const Index h = (rows - 1) * s.stride.h + reach(s.r, s.dil.h) - s.pad.top - s.pad.bottom;
  const Index w = (columns - 1) * s.stride.w + reach(s.s, s.dil.w) - s.pad.left - s.pad.right;
  // Where that is absurd the stage is dropped.
  s.h = std::max(s.h, h);
  s.w = std::max(s.w, w);
}
void pad_pool_rows(Random& random, Stage& s) {
  Pool& p = pool(s);
  p.window.h = std::max<Index>(p.window.h, 2);
  p.pad.h = random.between(1, p.window.h / 2);
}
void pad_pool_columns(Random& random, Stage& s) {
  Pool& p = pool(s);
  p.window.w = std::max<Index>(p.window.w, 2);
  p.pad.w = random.between(1, p.window.w / 2);
}
void dilate_pool_rows(Index least, Random& random, Stage& s) {
  Pool& p = pool(s);
  p.window.h = std::max<Index>(p.window.h, 2);
  p.dil.h = random.between(least, least + 3);
  room_for_window(s, p);
}
void dilate_pool_columns(Index least, Random& random, Stage& s) {
  Pool& p = pool(s);
  p.window.w = std::max<Index>(p.window.w, 2);
  p.dil.w = random.between(least, least + 3);
  room_for_window(s, p);
}
// Paddings, strides and dilations of up to 2^30, with a few outputs.
void make_rows_huge(Random& random, Stage& s) {
  const Index huge = random.pick<Index>({100'000, 30'000'019, 1'000'000'007});
  s.pad.top = huge;
  s.pad.bottom = random.chance(0.5) ? huge : 0;
  s.stride.h = huge / random.between(1, 3) + random.between(0, 3);
}
void make_columns_huge(Random& random, Stage& s) {
  const Index huge = random.pick<Index>({100'000, 30'000'019, 1'000'000'007});
  s.pad.left = random.chance(0.5) ? huge : 0;
  s.pad.right = huge;
  s.stride.w = huge / random.between(1, 3) + random.between(0, 3);
}
void dilate_rows_hugely(Random& random, Stage& s) {
  const Index huge = random.pick<Index>({100'000, 700'000'001});
  s.r = random.between(2, 3);
  s.dil.h = huge;
  s.pad.top = random.chance(0.5) ? huge : huge / 2;
  s.pad.bottom = huge * (s.r - 1) - s.pad.top + random.between(0, 2);
}

// The order matters to nobody; a name says what is meant.
constexpr Field all_fields[] = {
    {"f16", [](const Stage& s) { return s.dtype == DType::f16; },
     [](Random&, Stage& s) { s.dtype = DType::f16; }},
    {"bf16", [](const Stage& s) { return s.dtype == DType::bf16; },
     [](Random&, Stage& s) { s.dtype = DType::bf16; }},
    {"u8", [](const Stage& s) { return s.dtype == DType::u8; },
     [](Random&, Stage& s) { s.dtype = DType::u8; }},
    {"other output type", [](const Stage& s) { return s.out && *s.out != s.dtype; },
     [](Random& random, Stage& s) {
       s.out = random.pick({DType::f32, DType::f16, DType::bf16});
     }},
    {"nchw", [](const Stage& s) { return s.layout == Layout::nchw; },
     [](Random&, Stage& s) { s.layout = Layout::nchw; }},
    {"several images", [](const Stage& s) { return s.n > 1; },
     [](Random& random, Stage& s) { s.n = random.between(2, 5); }},
    {"one row", [](const Stage& s) { return s.h == 1; }, [](Random&, Stage& s) { s.h = 1; }},
    {"one column", [](const Stage& s) { return s.w == 1; }, [](Random&, Stage& s) { s.w = 1; }},
    {"one channel", [](const Stage& s) { return s.c == 1; },
     [](Random&, Stage& s) { s.c = s.groups = 1; }},
    {"one filter", [](const Stage& s) { return s.k == 1; },
     [](Random&, Stage& s) { s.k = s.groups = 1; }},
    {"groups", [](const Stage& s) { return s.groups > 1 && s.groups < s.c; },
     [](Random& random, Stage& s) {
       s.groups = random.between(2, 4);
       s.c = s.groups * random.pick<Index>({2, 3, 5, 8});
       s.k = s.groups * random.pick<Index>({1, 2, 7, 8});
     }},
    {"depthwise", [](const Stage& s) { return s.groups > 1 && s.groups == s.c; },
     [](Random& random, Stage& s) {
       s.c = s.groups = random.between(2, 24);
       s.k = s.c * random.pick<Index>({1, 1, 2});
     }},
    {"filter of one row", [](const Stage& s) { return s.r == 1; },
     [](Random&, Stage& s) { s.r = 1; }},
    {"filter of one column", [](const Stage& s) { return s.s == 1; },
     [](Random&, Stage& s) { s.s = 1; }},
    {"3x3", [](const Stage& s) { return s.r == 3 && s.s == 3; },
     [](Random&, Stage& s) { s.r = s.s = 3; }},
    {"large filter", [](const Stage& s) { return s.r > 4 && s.s > 4; },
     [](Random& random, Stage& s) {
       s.r = random.between(5, 9);
       s.s = random.between(5, 9);
       s.pad = Padding(s.r / 2);
     }},
    {"filter over the image", [](const Stage& s) { return s.r > s.h || s.s > s.w; },
     [](Random& random, Stage& s) {
       s.h = s.w = random.between(1, 3);
       s.r = s.s = random.between(4, 6);
       s.pad = Padding(s.r / 2 + 1);
     }},
    {"stride of rows", [](const Stage& s) { return s.stride.h > 1; },
     [](Random& random, Stage& s) { s.stride.h = random.between(2, 4); }},
    {"stride of columns", [](const Stage& s) { return s.stride.w > 1; },
     [](Random& random, Stage& s) { s.stride.w = random.between(2, 4); }},
    {"stride over the filter", [](const Stage& s) { return s.stride.h > s.r || s.stride.w > s.s; },
     [](Random& random, Stage& s) {
       s.stride = Extent(s.r + random.between(1, 3), s.s + random.between(0, 3));
     }},
    {"dilation of rows", [](const Stage& s) { return s.dil.h > 1; },
     [](Random& random, Stage& s) {
       s.r = std::max<Index>(s.r, 2);
       s.dil.h = random.between(2, 3);
       s.h = std::max(s.h, reach(s.r, s.dil.h));
     }},
    {"dilation of columns", [](const Stage& s) { return s.dil.w > 1; },
     [](Random& random, Stage& s) {
       s.s = std::max<Index>(s.s, 2);
       s.dil.w = random.between(2, 3);
       s.w = std::max(s.w, reach(s.s, s.dil.w));
     }},
    {"dilation over the image", [](const Stage& s) { return s.r > 1 && s.dil.h >= s.h; },
     [](Random& random, Stage& s) {
       s.r = random.between(2, 3);
       s.dil.h = s.h + random.between(0, 4);
       s.pad.top = random.between(s.dil.h / 2, s.dil.h * (s.r - 1));
       s.pad.bottom = s.dil.h * (s.r - 1) - s.pad.top + random.between(0, 2);
     }},
    {"pad top", [](const Stage& s) { return s.pad.top > 0; },
     [](Random& random, Stage& s) { s.pad.top = random.between(1, 3); }},
    {"pad left", [](const Stage& s) { return s.pad.left > 0; },
     [](Random& random, Stage& s) { s.pad.left = random.between(1, 3); }},
    {"pad bottom", [](const Stage& s) { return s.pad.bottom > 0; },
     [](Random& random, Stage& s) { s.pad.bottom = random.between(1, 3); }},
    {"pad right", [](const Stage& s) { return s.pad.right > 0; },
     [](Random& random, Stage& s) { s.pad.right = random.between(1, 3); }},
    {"rows of padding alone", [](const Stage& s) { return s.pad.top >= reach(s.r, s.dil.h); },
     [](Random& random, Stage& s) {
       const Index rows = reach(s.r, s.dil.h);
       s.pad.top = rows + random.between(0, 2);
       // Below a hugely dilated filter as much again would be an output of as many rows.
       s.pad.bottom = random.between(0, 1) + (rows < 1000 ? s.pad.top : 0);
     }},
    {"columns of padding alone", [](const Stage& s) { return s.pad.left >= reach(s.s, s.dil.w); },
     [](Random& random, Stage& s) {
       s.pad.left = reach(s.s, s.dil.w) + random.between(0, 2);
       s.pad.right = s.pad.left + random.between(0, 1);
     }},
    {"huge rows", [](const Stage& s) { return s.pad.top >= 100'000 && s.stride.h > 1; },
     make_rows_huge},
    {"huge columns", [](const Stage& s) { return s.pad.right >= 100'000; }, make_columns_huge},
    {"huge dilation", [](const Stage& s) { return s.r > 1 && s.dil.h >= 100'000; },
     dilate_rows_hugely},
    {"bias", [](const Stage& s) { return s.bias; }, [](Random&, Stage& s) { s.bias = true; }},
    {"norm", [](const Stage& s) { return s.norm; }, [](Random&, Stage& s) { s.norm = true; }},
    {"strict", [](const Stage& s) { return s.strict; }, [](Random&, Stage& s) { s.strict = true; }},
    {"relu", [](const Stage& s) { return s.act.kind == Activation::Kind::relu; },
     [](Random&, Stage& s) { s.act = relu; }},
    {"clip", [](const Stage& s) { return s.act.kind == Activation::Kind::clip; },
     [](Random& random, Stage& s) {
       s.act = clip_to(random.pick({-1.0F, 0.0F, -0.0F}), 2);
     }},
    {"leaky",
     [](const Stage& s) { return s.act.kind == Activation::Kind::leaky && s.act.slope() > 0; },
     [](Random& random, Stage& s) {
       s.act = leaky(random.pick({0.1F, 1.5F}));
     }},
    {"leaky that falls or is flat",
     [](const Stage& s) { return s.act.kind == Activation::Kind::leaky && s.act.slope() <= 0; },
     [](Random& random, Stage& s) {
       s.act = leaky(random.pick({0.0F, -0.5F}));
     }},
    {"neuron", [](const Stage& s) { return s.act.is_neuron(); }, need_neuron},
    {"soft", [](const Stage& s) { return s.soft; },
     [](Random& random, Stage& s) {
       need_neuron(random, s);
       s.soft = true;
     }},
    {"steps", [](const Stage& s) { return s.t > 1; },
     [](Random& random, Stage& s) {
       need_neuron(random, s);
       s.t = random.between(2, 4);
     }},
    {"hold", [](const Stage& s) { return s.hold; },
     [](Random& random, Stage& s) {
       need_neuron(random, s);
       s.hold = true;
     }},
    {"max2", [](const Stage& s) { return s.pool == max_pool(2); },
     [](Random&, Stage& s) { s.pool = max_pool(2); }},
    {"pool of one row", [](const Stage& s) { return s.pool && s.pool->window.h == 1; },
     [](Random&, Stage& s) { pool(s).window.h = 1, pool(s).pad.h = 0; }},
    {"pool of one column", [](const Stage& s) { return s.pool && s.pool->window.w == 1; },
     [](Random&, Stage& s) { pool(s).window.w = 1, pool(s).pad.w = 0; }},
    {"large pool", [](const Stage& s) { return s.pool && s.pool->window.h > 2; },
     [](Random& random, Stage& s) {
       Pool& p = pool(s);
       p.window = Extent(random.between(3, 5), random.between(2, 5));
       room_for_window(s, p);
     }},
    {"pool rows overlap",
     [](const Stage& s) { return s.pool && s.pool->stride.h < s.pool->window.h; },
     [](Random& random, Stage& s) {
       Pool& p = pool(s);
       p.window.h = std::max<Index>(p.window.h, 2);
       p.stride.h = random.between(1, p.window.h - 1);
     }},
    {"pool columns overlap",
     [](const Stage& s) { return s.pool && s.pool->stride.w < s.pool->window.w; },
     [](Random& random, Stage& s) {
       Pool& p = pool(s);
       p.window.w = std::max<Index>(p.window.w, 2);
       p.stride.w = random.between(1, p.window.w - 1);
     }},
    {"pool skips", [](const Stage& s) { return s.pool && s.pool->stride.h > s.pool->window.h; },
     [](Random& random, Stage& s) {
       pool(s).stride.h = pool(s).window.h + random.between(1, 3);
       pool(s).stride.w = pool(s).window.w + random.between(0, 3);
     }},
    {"pool pad of rows", [](const Stage& s) { return s.pool && s.pool->pad.h > 0; }, pad_pool_rows},
    {"pool pad of columns", [](const Stage& s) { return s.pool && s.pool->pad.w > 0; },
     pad_pool_columns},
    {"pool dilation of rows", [](const Stage& s) { return s.pool && s.pool->dil.h > 1; },
     [](Random& random, Stage& s) { dilate_pool_rows(2, random, s); }},
    {"pool dilation of columns", [](const Stage& s) { return s.pool && s.pool->dil.w > 1; },
     [](Random& random, Stage& s) { dilate_pool_columns(2, random, s); }},
    // Windows of which the first rows lie in the padding and the next ones far inside.
    {"pool rows far apart",
     [](const Stage& s) { return s.pool && s.pool->dil.h > s.pool->pad.h + 1; },
     [](Random& random, Stage& s) { dilate_pool_rows(pool(s).pad.h + 2, random, s); }},
    {"pool columns far apart",
     [](const Stage& s) { return s.pool && s.pool->dil.w > s.pool->pad.w + 1; },
     [](Random& random, Stage& s) { dilate_pool_columns(pool(s).pad.w + 2, random, s); }},
    {"ceil", [](const Stage& s) { return s.pool && s.pool->ceil; },
     [](Random&, Stage& s) { pool(s).ceil = true; }},
    {"keep pre", [](const Stage& s) { return s.keep.pre; },
     [](Random&, Stage& s) { s.keep.pre = true; }},
    {"keep act", [](const Stage& s) { return s.keep.act; },
     [](Random&, Stage& s) { s.keep.act = true; }},
    {"keep idx", [](const Stage& s) { return s.keep.idx; },
     [](Random&, Stage& s) {
       pool(s);
       s.keep.idx = true;
     }},
};

// The fields that a stage has.
std::vector<int> fields_of(const Stage& stage) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(std::size(all_fields)); ++i)
    if (all_fields[i].has(stage)) found.push_back(i);
  return found;
}

// A stage that has both: drawn, given both, and kept if it is legal and small. None: they seem to
// exclude each other.
std::optional<Stage> draw_with(int a, int b, DeviceKind device, Random& random) {
  for (int attempt = 0; attempt < 60; ++attempt) {
    Stage stage = draw_stage(random, device);
    // Either may undo the other.
    const bool turned = attempt % 2 == 1;
    all_fields[turned ? b : a].give(random, stage);
    all_fields[turned ? a : b].give(random, stage);
    if (all_fields[a].has(stage) && all_fields[b].has(stage) && is_small(stage)) return stage;
  }
  return {};
}

}  // namespace

std::span<const Field> fields() {
  return all_fields;
}

void give_fields(Random& random, Stage& stage) {
  const Index count = random.pick<Index>({1, 1, 2, 2, 3, 5, 8});
  for (Index i = 0; i < count; ++i)
    all_fields[random.between(0, static_cast<Index>(std::size(all_fields)) - 1)].give(random,
                                                                                      stage);
}

void count_fields(const Stage& stage, FieldPairs& pairs) {
  const std::vector<int> found = fields_of(stage);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = i + 1; j < found.size(); ++j) ++pairs[{found[i], found[j]}];
}

std::vector<Stage> fill_fields(const std::vector<Stage>& planned, Index least, DeviceKind device,
                               Random& random, FieldPairs& pairs) {
  for (const Stage& stage : planned) count_fields(stage, pairs);
  std::vector<Stage> more;
  const int count = static_cast<int>(std::size(all_fields));
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b)
      for (int failed = 0; pairs[{a, b}] < least;) {
        const auto stage = draw_with(a, b, device, random);
        if (stage) {
          count_fields(*stage, pairs);
          more.push_back(*stage);
        } else if (pairs[{a, b}] == 0 || ++failed > 50) {
          break;
        }
      }
  std::erase_if(pairs, [](const auto& pair) { return pair.second == 0; });
  return more;
}

}  // namespace convoy::verify
