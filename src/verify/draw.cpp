#include "verify/draw.hpp"

#include <algorithm>
#include <cstring>

#include "math/half.hpp"
#include "verify/fields.hpp"

namespace convoy::verify {
namespace {

constexpr Index most_macs = 3'000'000;

Index awkward_size(Random& random) {
  return random.pick<Index>({1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 16, 17, 19, 23});
}
Index channels(Random& random) {
  return random.pick<Index>(
      {1, 2, 3, 4, 5, 7, 8, 12, 13, 15, 16, 17, 24, 31, 32, 33, 40, 48, 64, 65});
}
Index many_channels(Random& random) {
  return random.pick<Index>({16, 17, 20, 24, 29, 31, 32, 33, 40, 48, 64, 65, 80, 96});
}

// The sizes that the families are made for, each with its share, and anything else.
void draw_convolution(Random& random, Stage& s) {
  s.n = random.pick<Index>({1, 1, 1, 2, 3, 5});
  s.h = awkward_size(random);
  s.w = random.chance(0.4) ? s.h : awkward_size(random);
  s.k = channels(random);
  s.c = channels(random);
  const double kind = random.uniform();
  if (kind < 0.25) {  // 3x3
    s.r = s.s = 3;
    s.c = many_channels(random);
    s.pad = random.pick({Padding(1), Padding(1), Padding(0), Padding(2), Padding(0, 1, 2, 1)});
  } else if (kind < 0.40) {  // first layers
    s.c = random.between(1, 4);
    s.r = s.s = random.pick<Index>({3, 3, 5, 7});
    s.pad = random.chance(0.7) ? Padding(s.r / 2) : Padding(0);
    s.stride = random.chance(0.3) ? Extent(2) : Extent(1);
  } else if (kind < 0.52) {  // 1x1
    s.r = s.s = 1;
    s.stride = random.chance(0.25) ? Extent(2) : Extent(1);
  } else if (kind < 0.60) {  // few filters
    s.r = s.s = random.pick<Index>({1, 3, 3, 5});
    s.c = many_channels(random);
    s.k = random.between(1, 8);
    s.pad = Padding(s.r / 2);
  } else if (kind < 0.69) {  // depthwise
    s.r = s.s = random.pick<Index>({3, 3, 5});
    s.groups = s.c;
    s.k = s.c * random.pick<Index>({1, 1, 1, 2, 3});
    s.pad = Padding(s.r / 2);
    s.stride = random.chance(0.3) ? Extent(2) : Extent(1);
  } else if (kind < 0.75) {  // linear layers
    s.h = s.w = s.r = s.s = 1;
    s.n = random.pick<Index>({1, 2, 7, 16, 37});
    s.c = many_channels(random);
  } else {
    s.r = random.between(1, 7);
    s.s = random.chance(0.6) ? s.r : random.between(1, 7);
    s.stride = Extent(random.pick<Index>({1, 1, 2, 3}), random.pick<Index>({1, 1, 2, 3}));
    s.dil = random.chance(0.3) ? Extent(random.between(1, 3), random.between(1, 3)) : Extent(1);
    for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
      *side = random.chance(0.5) ? random.between(0, 3) : 0;
    s.groups = random.chance(0.3) ? random.between(2, 4) : 1;
    s.c *= s.groups;
    s.k *= s.groups;
  }
}

Index round_up(Index value, Index step) {
  return (value + step - 1) / step * step;
}

// Sizes that leave nothing over at the ends of tiles: they are too rare among the others.
void make_whole(Stage& s) {
  if (s.groups != 1) return;
  s.c = round_up(s.c, 8);
  s.k = round_up(s.k, 16);
  s.h = round_up(s.h, 8);
  s.w = round_up(s.w, 8);
}

// What a GPU's fast families are made for: 16-bit types, and channels in units of 16 bytes; and
// 3x3 filters of f32 over many channels.
void suit_gpu(Random& random, Stage& s) {
  if (random.chance(0.1)) {
    s.dtype = DType::f32;
    s.r = s.s = 3, s.groups = 1;
    s.c = random.pick<Index>({64, 68, 96, 100, 128});
    s.k = std::min<Index>(s.k, 33);
    s.stride = s.dil = Extent(1);
    s.pad = random.pick({Padding(1), Padding(1), Padding(0), Padding(0, 1, 2, 1)});
    if (random.chance(0.3)) s.layout = Layout::nchw;
    return;
  }
  const double type = random.uniform();
  if (type < 0.85) s.dtype = type < 0.5 ? DType::f16 : type < 0.75 ? DType::bf16 : DType::u8;
  if (random.chance(0.25)) return;
  if (s.groups == s.c) {
    s.k = s.k / s.c * round_up(s.c, 8);
    s.c = s.groups = round_up(s.c, 8);
  }
  if (s.groups != 1) return;
  if (s.c > 4) s.c = round_up(s.c, 8);
  if (s.k > 8) s.k = round_up(s.k, 8);
}

void draw_neuron(Random& random, Stage& s) {
  const float threshold = random.pick({1.0F, 0.5F, 0.25F, 1.5F, -0.5F});
  s.act = random.chance(0.5) ? integrate_fire(threshold)
                             : lif(random.pick({2.0F, 1.0F, 1.5F, 3.0F}), threshold);
  s.soft = random.chance(0.4);
  s.t = random.between(1, 4);
  s.hold = random.chance(0.4);
}

void draw_riders(Random& random, Stage& s) {
  s.bias = random.chance(0.7);
  s.norm = random.chance(s.dtype == DType::u8 ? 0.6 : 0.08);
  const double act = random.uniform();
  if (act < 0.36)
    s.act = relu;
  else if (act < 0.46)
    s.act = relu6;
  else if (act < 0.56)
    s.act = clip_to(random.pick({0.0F, -1.0F, 0.3F}), random.pick({0.5F, 2.0F, 1e30F}));
  else if (act < 0.66)
    s.act = leaky(random.pick({0.1F, 0.01F, 0.0F, 1.5F, -0.5F}));
  else if (act < 0.84)
    draw_neuron(random, s);
  const double pool = random.uniform();
  if (pool < 0.35) {
    s.pool = max_pool(2);
  } else if (pool < 0.65) {
    Pool other;
    other.window = Extent(random.between(1, 4), random.between(1, 4));
    other.stride = Extent(random.between(1, 4), random.between(1, 4));
    other.pad =
        Extent(random.between(0, other.window.h / 2), random.between(0, other.window.w / 2));
    if (random.chance(0.2)) other.dil = Extent(random.between(1, 2), random.between(1, 2));
    if (random.chance(0.3)) other = Pool{3, 2, 1, 1, false};
    other.ceil = random.chance(0.3);
    s.pool = other;
  }
  if (s.pool == max_pool(2) && random.chance(0.2)) s.pool->ceil = true;
  if (random.chance(0.12))
    s.keep = {random.chance(0.5), random.chance(0.5), s.pool.has_value() && random.chance(0.6)};
  s.strict = random.chance(0.3);
}

void set(Tensor& tensor, Index i, double value) {
  if (tensor.view().dtype == DType::u8)
    tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
  else
    math::store(tensor.view().dtype, tensor.view().data, i, static_cast<float>(value));
}

// |x'| and |w| such that every partial sum stays below 2^24; zero where there are none.
struct Bounds {
  Index x = 0, w = 0;
};
Bounds exact_bounds(const Stage& s) {
  // Pairs of taps make sums of up to four times as many products as an output.
  Index depth = 4 * s.r * s.s * (s.c / s.groups);
  // The transforms of F(2x2, 3x3) make sums of up to 324 such products a channel, in quarters.
  if (s.r == 3 && s.s == 3) depth = 324 * (s.c / s.groups);
  const Index product = ((Index{1} << 24) - 1) / depth;
  if (product < 1) return {};
  Bounds bounds;
  bounds.w = std::clamp<Index>(static_cast<Index>(std::sqrt(static_cast<double>(product))), 1, 100);
  bounds.x = std::clamp<Index>(product / bounds.w, 1, 100);
  return bounds;
}

}  // namespace

Stage draw_stage(Random& random, DeviceKind device) {
  while (true) {
    Stage s;
    s.dtype = random.chance(0.72) ? DType::f32 : random.pick({DType::u8, DType::f16, DType::bf16});
    draw_convolution(random, s);
    if (random.chance(0.15)) make_whole(s);
    if (device == DeviceKind::cuda) suit_gpu(random, s);
    draw_riders(random, s);
    if (random.chance(0.06)) s.layout = Layout::nchw;
    if (random.chance(0.06)) {
      s.out = random.pick({DType::f32, DType::f16, DType::bf16});
      if (s.out == Stage{.dtype = s.dtype}.output_dtype()) s.out.reset();
    }
    if (random.chance(0.4)) give_fields(random, s);
    if (is_small(s)) return s;
  }
}

bool is_small(const Stage& stage) {
  if (!problems(stage).empty()) return false;
  const Shapes shapes = shapes_of(stage);
  return shapes.macs <= most_macs && shapes.pre_elements <= 200'000 &&
         shapes.x_elements <= 1'000'000;
}

std::string_view name(Data data) {
  switch (data) {
    case Data::integers:
      return "integers";
    case Data::normal:
      return "normal";
    case Data::mean10:
      return "mean 10";
    case Data::scaled:
      return "scaled channels";
  }
  return "?";
}

Operands Inputs::operands() const {
  Operands operands;
  operands.x = x;
  if (stage.bias) operands.bias = bias;
  if (stage.norm) operands.norm_scale = norm_scale;
  if (stage.norm) operands.norm_shift = norm_shift;
  if (membrane_in.view()) operands.membrane_in = membrane_in;
  return operands;
}

std::optional<Inputs> draw_inputs(const Stage& stage, Data data, std::uint64_t seed) {
  const bool integers = data == Data::integers;
  const Bounds bounds = integers ? exact_bounds(stage) : Bounds{};
  if (integers && bounds.x == 0) return {};
  Random random(mix(seed * 4 + static_cast<std::uint64_t>(data), to_text(stage)));

  Inputs in;
  in.stage = stage;
  in.x = Tensor(stage.dtype, x_shape(stage));
  in.weights = Tensor(DType::f32, w_shape(stage));
  const Index depth = stage.r * stage.s * (stage.c / stage.groups);
  // Sums of order one; bytes without `norm` are large.
  const double size = stage.dtype == DType::u8 && !stage.norm ? 128 : 1;
  const double spread = 1 / (size * std::sqrt(static_cast<double>(depth)));
  const DType weight_type = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
  for (Index i = 0; i < in.weights.elements(); ++i) {
    const double w = integers ? static_cast<double>(random.between(-bounds.w, bounds.w))
                              : random.normal() * spread;
    set(in.weights, i, math::round_to(weight_type, static_cast<float>(w)));
  }

  if (stage.bias) in.bias = Tensor(DType::f32, {stage.k});
  for (Index k = 0; stage.bias && k < stage.k; ++k)
    set(in.bias, k, random.normal() * (integers ? 8 : 0.25));

  // x' = x·scale + shift has to keep the bound too.
  const bool wide = bounds.x >= 5;
  const Index most_x = integers && stage.norm && wide ? (bounds.x - 3) / 2 : bounds.x;
  if (stage.norm) {
    in.norm_scale = Tensor(DType::f32, {stage.c});
    in.norm_shift = Tensor(DType::f32, {stage.c});
    const double byte = stage.dtype == DType::u8 ? 1.0 / 64 : 1.0;
    for (Index c = 0; c < stage.c; ++c) {
      const double scale = wide ? static_cast<double>(random.pick({1, 2, -1, -2})) : 1.0;
      const double shift = wide ? static_cast<double>(random.between(-3, 3)) : 0.0;
      set(in.norm_scale, c, integers ? scale : byte * (1 + 0.3 * random.normal()));
      set(in.norm_shift, c, integers ? shift : random.normal());
    }
  }

  const bool half = stage.dtype == DType::f16 || stage.output_dtype() == DType::f16;
  const Index plane = stage.layout == Layout::nchw ? stage.h * stage.w : 1;
  for (Index i = 0; i < in.x.elements(); ++i) {
    double x = 0;
    if (integers)
      x = static_cast<double>(random.between(stage.dtype == DType::u8 ? 0 : -most_x, most_x));
    else if (stage.dtype == DType::u8)
      x = static_cast<double>(random.between(0, 255));
    else
      x = random.normal() + (data == Data::mean10 ? 10 : 0);
    if (data == Data::scaled && i / plane % stage.c % 2 == 0) x *= half ? 100 : 10'000;
    set(in.x, i, x);
  }

  if (stage.act.is_neuron() && random.chance(0.5)) {
    in.membrane_in = Tensor(DType::f32, membrane_shape(stage));
    for (Index i = 0; i < in.membrane_in.elements(); ++i) set(in.membrane_in, i, random.normal());
  }
  return in;
}

void copy_images(const Tensor& from, Index first, Tensor& to) {
  const ConstTensorView all = from.view(), some = to.view();
  const Index steps = all.rank == 5 ? all.shape[0] : 1;
  const Index images = all.shape[all.rank == 5 ? 1 : 0];
  const Index n = some.shape[some.rank == 5 ? 1 : 0];
  const std::size_t image = from.bytes() / static_cast<std::size_t>(steps * images);
  for (Index t = 0; t < steps; ++t)
    for (Index i = 0; i < n; ++i)
      std::memcpy(
          to.data<char>() + static_cast<std::size_t>(t * n + i) * image,
          from.data<char>() + static_cast<std::size_t>(t * images + (first + i) % images) * image,
          image);
}

Inputs repeat_images(const Inputs& inputs, Index first, Index n) {
  Stage stage = inputs.stage;
  stage.n = n;
  Inputs out;
  out.stage = stage;
  out.x = Tensor(stage.dtype, x_shape(stage));
  out.weights = inputs.weights.clone();
  if (stage.bias) out.bias = inputs.bias.clone();
  if (stage.norm) out.norm_scale = inputs.norm_scale.clone();
  if (stage.norm) out.norm_shift = inputs.norm_shift.clone();
  if (inputs.membrane_in.view()) out.membrane_in = Tensor(DType::f32, membrane_shape(stage));

  copy_images(inputs.x, first, out.x);
  if (inputs.membrane_in.view()) copy_images(inputs.membrane_in, first, out.membrane_in);
  return out;
}

}  // namespace convoy::verify
