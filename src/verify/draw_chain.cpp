#include "verify/draw_chain.hpp"

#include <algorithm>
#include <cmath>

#include "math/half.hpp"

namespace convoy::verify {
namespace {

bool all_small(const Chain& chain, DeviceKind device) {
  if (!problems(chain, device == DeviceKind::cuda).empty()) return false;
  return std::all_of(chain.stages.begin(), chain.stages.end(),
                     [](const Stage& stage) { return is_small(stage); });
}

void draw_neuron(Random& random, Stage& s, Index steps, bool of_images) {
  const float threshold = random.pick({1.0F, 0.5F, 0.25F, 1.5F, -0.5F});
  s.act = of_images || random.chance(0.5) ? integrate_fire(threshold)
                                          : lif(random.pick({2.0F, 1.0F, 1.5F, 3.0F}), threshold);
  s.soft = random.chance(0.4);
  s.t = steps;
  s.hold = of_images;
}

// On h x w x c, which its padding may enlarge.
Stage draw_layer(Random& random, Index n, Index h, Index w, Index c) {
  Stage s;
  s.n = n, s.h = h, s.w = w, s.c = c;
  s.k = random.pick<Index>({1, 3, 8, 9, 15, 16, 17, 24, 32, 33});
  s.bias = random.chance(0.6);
  return s;
}

Stage draw_spiking_convolution(Random& random, const Stage& image, Index steps, bool of_images) {
  Stage s = draw_layer(random, image.n, image.h, image.w, image.c);
  s.r = random.between(1, 5);
  s.s = random.chance(0.6) ? s.r : random.between(1, 5);
  if (!of_images)
    for (Index* side : {&s.pad.top, &s.pad.left, &s.pad.bottom, &s.pad.right})
      *side = random.chance(0.5) ? random.between(0, 2) : 0;
  if (random.chance(0.2)) s.stride = Extent(random.between(1, 2), random.between(1, 3));
  if (random.chance(0.2)) s.dil = Extent(random.between(1, 2), random.between(1, 2));
  draw_neuron(random, s, steps, of_images);
  if (random.chance(0.5)) s.pool = max_pool(2);
  if (s.pool && random.chance(0.05)) s.pool->ceil = true;
  return s;
}

// Sizes that leave nothing over at the ends of tiles.
void make_whole_image(Stage& s) {
  s.h = s.w = 8;
  s.c = 8;
}
void make_whole_layer(Stage& s) {
  s.r = s.s = 3;
  s.pad = Padding(1);
  s.stride = s.dil = Extent(1);
  s.k = 16;
  s.pool.reset();
}

// Layers whose tables outgrow the caches, on few pixels.
void make_wide_image(Random& random, Stage& s, bool images) {
  s.n = random.pick<Index>({1, 2, 3, 7});
  if (images) {
    s.h = s.w = 8;
    return;
  }
  s.h = random.between(3, 5), s.w = random.between(3, 5);
  s.c = random.pick<Index>({40, 64, 72, 130});
}
void make_wide_layer(Random& random, Stage& s) {
  s.r = s.s = 3;
  s.dil = Extent(1);
  s.k = random.pick<Index>({48, 64, 65, 100});
}

// False: the layer is not legal. `at`: what the next one reads.
bool append(OwnedChain& chain, const Stage& layer, Stage& at) {
  if (!problems(layer).empty()) return false;
  chain.stages.push_back(layer);
  const Shapes shapes = shapes_of(layer);
  at.h = shapes.out_h, at.w = shapes.out_w, at.c = layer.k;
  return true;
}

// So many linear layers, the last of them a mean by `mean`'s chance.
void append_linears(Random& random, OwnedChain& chain, Stage& at, Index steps, Index linears,
                    double mean, bool wide = false) {
  for (Index i = 0; i < linears; ++i) {
    Stage s = draw_layer(random, at.n, 1, 1, at.h * at.w * at.c);
    s.r = s.s = 1;
    if (wide) s.k = random.pick<Index>({500, 513, 600});
    draw_neuron(random, s, steps, false);
    chain.stages.push_back(s);
    at.h = at.w = 1, at.c = s.k;
  }
  if (linears == 0 || !random.chance(mean)) return;
  chain.mean = true;
  Stage& last = chain.stages.back();
  last.act = no_act;
  last.soft = false;
  last.t = 1;
}

OwnedChain draw_spiking(Random& random) {
  OwnedChain chain;
  chain.constants = true;
  const bool images = random.chance(0.5);
  const Index steps = random.between(1, images ? 2 : 6);
  chain.binary = !images;
  chain.x_steps = images ? 1 : steps;
  Stage at;  // what the next layer reads
  at.n = random.pick<Index>({1, 1, 2, 3, 5, 7, 33, 65});
  at.h = random.between(1, 13);
  at.w = random.chance(0.4) ? at.h : random.between(1, 13);
  at.c = images ? random.between(1, 4) : random.pick<Index>({1, 2, 3, 7, 8, 9, 16, 17, 24, 31});
  const bool whole = !images && random.chance(0.15);
  if (whole) make_whole_image(at);
  const bool wide = !whole && random.chance(0.1);
  if (wide) make_wide_image(random, at, images);
  const Index convolutions = random.between(images || whole ? 1 : 0, 2);
  const Index least = convolutions == 0 ? 1 : 0;
  const Index linears = whole ? 0 : random.between(least, 2);
  for (Index i = 0; i < convolutions; ++i) {
    const bool of_images = images && i == 0;
    Stage s = draw_spiking_convolution(random, at, steps, of_images);
    if (whole) make_whole_layer(s);
    if (wide) make_wide_layer(random, s);
    if (of_images) s.dtype = DType::u8;
    if (!append(chain, s, at)) return {};
  }
  append_linears(random, chain, at, steps, linears, 0.5, wide);
  return chain;
}

void draw_activation(Random& random, Stage& s) {
  s.act = random.pick({no_act, relu, relu, relu6, clip_to(-1, 2), leaky(0.25F)});
}

// The shape that has a code of its own: the shipped network's.
OwnedChain draw_known(Random& random) {
  OwnedChain chain = parse_chain(
      "constants > u8:n1h28c1k8r5out(f32)+if(1)+t2+hold+max2 > n1h12c8k16r5+if(1)+t2+max2 > "
      "n1h1c256k128r1+if(1)+t2 > n1h1c128k96r1+if(1)+t2 > n1h1c96k10r1 > mean",
      true);
  chain = with_images(chain, random.pick<Index>({1, 2, 3, 5, 7}));
  for (Stage& stage : chain.stages) stage.bias = random.chance(0.6);
  return chain;
}

// What a GPU runs from u8 images to labels in one kernel: neurons of any kind behind the images
// too.
OwnedChain draw_resident(Random& random) {
  if (random.chance(0.06)) return draw_known(random);
  OwnedChain chain;
  chain.constants = true;
  const Index steps = random.between(1, 6);
  Stage at;  // what the next layer reads
  at.n = random.pick<Index>({1, 1, 2, 3, 5, 7, 33, 65});
  at.h = random.between(1, 15);
  at.w = random.chance(0.4) ? at.h : random.between(1, 15);
  at.c = random.between(1, 4);
  const bool whole = random.chance(0.2);
  if (whole) make_whole_image(at);
  const Index convolutions = random.between(1, 3), linears = whole ? 0 : random.between(0, 3);
  for (Index i = 0; i < convolutions; ++i) {
    Stage s = draw_spiking_convolution(random, at, steps, false);
    if (whole) make_whole_layer(s);
    if (i == 0) {
      s.dtype = DType::u8;
      s.out = DType::f32;
      s.hold = true;
    }
    if (!append(chain, s, at)) return {};
  }
  append_linears(random, chain, at, steps, linears, 0.6);
  return chain;
}

OwnedChain draw_pointwise(Random& random) {
  OwnedChain chain;
  Stage first = draw_layer(random, random.pick<Index>({1, 1, 2, 3, 5}), random.between(2, 23),
                           random.between(2, 23), random.pick<Index>({8, 16, 24, 40, 64, 72, 136}));
  first.dtype = random.chance(0.6) ? DType::f16 : DType::bf16;
  first.k = random.pick<Index>({8, 16, 24, 40, 64, 72, 96, 128});
  first.r = random.pick<Index>({1, 3, 3, 5});
  first.s = random.chance(0.8) ? first.r : random.pick<Index>({1, 3, 5});
  first.pad = random.chance(0.7) ? Padding(first.r / 2) : Padding(0);
  if (random.chance(0.2)) first.stride = Extent(random.between(1, 2), random.between(1, 2));
  draw_activation(random, first);
  if (random.chance(0.9)) first.pool = max_pool(2);
  if (!problems(first).empty()) return {};
  const Shapes shapes = shapes_of(first);
  Stage second = draw_layer(random, first.n, shapes.out_h, shapes.out_w, first.k);
  second.dtype = first.dtype;
  second.k = random.pick<Index>({8, 16, 24, 64, 72, 88, 128, 136, 256});
  second.r = second.s = 1;
  draw_activation(random, second);
  if (random.chance(0.5)) second.pool = max_pool(2);
  if (random.chance(0.2)) first.strict = second.strict = true;
  chain.stages = {first, second};
  return chain;
}

// Of the runs' images each step.
std::vector<Index> shape_of_x(const Chain& chain) {
  std::vector<Index> shape = x_shape(chain.front());
  if (shape.size() == 4 && chain.x_steps > 1) shape.insert(shape.begin(), chain.x_steps);
  return shape;
}

double draw_x(Random& random, const Chain& chain, bool integers) {
  if (chain.binary) return random.chance(0.3) ? 1 : 0;
  if (chain.front().dtype == DType::u8) return static_cast<double>(random.between(0, 255));
  return integers ? static_cast<double>(random.between(-2, 2)) : random.normal();
}

Tensor draw_weights(Random& random, const Stage& stage, bool integers) {
  Tensor weights(DType::f32, w_shape(stage));
  // Neurons are to fire about as often as not.
  const double gain = stage.act.is_neuron() ? 2 : 1;
  const auto depth = static_cast<double>(stage.r * stage.s * (stage.c / stage.groups));
  const DType type = stage.dtype == DType::u8 ? stage.output_dtype() : stage.dtype;
  for (Index i = 0; i < weights.elements(); ++i) {
    const double w = integers ? static_cast<double>(random.between(-2, 2))
                              : random.normal() * gain / std::sqrt(depth);
    weights.data<float>()[i] = math::round_to(type, static_cast<float>(w));
  }
  return weights;
}

}  // namespace

OwnedChain draw_chain(Random& random, DeviceKind device) {
  while (true) {
    OwnedChain chain = device != DeviceKind::cuda ? draw_spiking(random)
                       : random.chance(0.5)       ? draw_resident(random)
                                                  : draw_pointwise(random);
    if (all_small(chain, device)) return chain;
  }
}

OwnedChain vary(const Chain& chain, Random& random) {
  OwnedChain other = with_images(chain, random.between(1, 40));
  for (Stage& stage : other.stages) stage.bias = random.chance(0.5);
  return other;
}

std::vector<Parameters> ChainInputs::parameters(const KernelFacts& facts) const {
  std::vector<Parameters> all;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    all.push_back({.w = weights[i].data<float>()});
    if (facts.folds) all.back().bias = bias[i].data<float>();
    if (facts.folds && i == 0) all.back().values = values.data<float>();
  }
  return all;
}

Tensor ChainInputs::plain_x() const {
  if (!values.view()) return x.clone();
  const ConstTensorView view = x.view();
  const Stage& stage = chain.stages.front();
  Tensor plain(DType::f32, {view.shape.begin(), view.shape.begin() + view.rank});
  const Index plane = stage.layout == Layout::nchw ? stage.h * stage.w : 1;
  for (Index i = 0; i < x.elements(); ++i)
    plain.data<float>()[i] =
        values.data<float>()[i / plane % stage.c * 256 + x.data<std::uint8_t>()[i]];
  return plain;
}

ChainInputs draw_inputs(const Chain& chain, Data data, std::uint64_t seed) {
  const bool integers = data == Data::integers;
  Random random(mix(seed * 4 + static_cast<std::uint64_t>(data), to_text(chain)));
  ChainInputs in;
  in.chain = OwnedChain(chain);
  const Stage& first = chain.front();
  in.x = Tensor(first.dtype, shape_of_x(chain));
  for (Index i = 0; i < in.x.elements(); ++i) {
    const double x = draw_x(random, chain, integers);
    if (first.dtype == DType::u8)
      in.x.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(x);
    else
      math::store(first.dtype, in.x.view().data, i, static_cast<float>(x));
  }
  for (const Stage& stage : chain.stages) {
    in.weights.push_back(draw_weights(random, stage, integers));
    in.bias.emplace_back();
    if (!stage.bias) continue;
    in.bias.back() = Tensor(DType::f32, {stage.k});
    for (Index k = 0; k < stage.k; ++k)
      in.bias.back().data<float>()[k] = static_cast<float>(
          integers ? static_cast<double>(random.between(-8, 8)) : random.normal() / 4);
  }
  if (!chain.constants || first.dtype != DType::u8) return in;
  in.values = Tensor(DType::f32, {first.c, 256});
  for (Index i = 0; i < in.values.elements(); ++i) {
    const auto u = static_cast<double>(i % 256), c = static_cast<double>(i / 256);
    in.values.data<float>()[i] =
        static_cast<float>(integers ? std::floor(u / 32) - 4 + c : (u / 255 - 0.1 * c - 0.4) / 0.4);
  }
  return in;
}

ChainInputs draw_ties(const Chain& chain, std::uint64_t seed) {
  Random random(mix(seed * 4 + 3, to_text(chain)));
  ChainInputs in;
  in.chain = OwnedChain(chain);
  const Stage& first = chain.front();
  const bool pixels = first.dtype == DType::u8;
  in.x = Tensor(first.dtype, shape_of_x(chain));
  for (Index i = 0; i < in.x.elements(); ++i) {
    const bool one = random.chance(0.5);
    if (pixels)
      in.x.data<std::uint8_t>()[i] = one ? 255 : 0;
    else
      math::store(first.dtype, in.x.view().data, i, one ? 1.0F : 0.0F);
  }
  for (const Stage& stage : chain.stages) {
    // Eighths as a rule; else more bits than an f16 number has, or whole numbers.
    const double kind = random.between(0, 9);
    const Index unit = kind < 2 ? 2048 : kind < 3 ? 1 : 8, most = unit == 1 ? 2 : unit * 3 / 4;
    in.weights.emplace_back(DType::f32, w_shape(stage));
    for (Index i = 0; i < in.weights.back().elements(); ++i)
      in.weights.back().data<float>()[i] =
          static_cast<float>(random.between(-most * 2 / 3, most)) / static_cast<float>(unit);
    in.bias.emplace_back();
    if (!stage.bias) continue;
    in.bias.back() = Tensor(DType::f32, {stage.k});
    for (Index k = 0; k < stage.k; ++k)
      in.bias.back().data<float>()[k] =
          static_cast<float>(random.between(-most, most)) / static_cast<float>(unit);
  }
  if (!chain.constants || !pixels) return in;
  in.values = Tensor(DType::f32, {first.c, 256});
  const bool plain = random.chance(0.4), one_std = random.chance(0.5);
  const float std_of_all = random.pick({1.0F, 0.5F, 0.25F});
  for (Index c = 0; c < first.c; ++c) {
    const float mean = plain ? 0 : random.pick({0.0F, 0.5F, 0.25F});
    const float std = plain ? 1 : one_std ? std_of_all : random.pick({1.0F, 0.5F, 0.25F});
    for (Index u = 0; u < 256; ++u)
      in.values.data<float>()[c * 256 + u] = (static_cast<float>(u) / 255.0F - mean) / std;
  }
  return in;
}

ChainInputs repeat_images(const ChainInputs& inputs, Index first, Index n) {
  ChainInputs out;
  out.chain = with_images(inputs.chain, n);
  out.x = Tensor(inputs.x.view().dtype, shape_of_x(out.chain));
  copy_images(inputs.x, first, out.x);
  for (std::size_t i = 0; i < inputs.weights.size(); ++i) {
    out.weights.push_back(inputs.weights[i].clone());
    out.bias.push_back(inputs.bias[i].view() ? inputs.bias[i].clone() : Tensor());
  }
  if (inputs.values.view()) out.values = inputs.values.clone();
  return out;
}

}  // namespace convoy::verify
