#include "cuda/sm80/spike_resident_plan.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/size.hpp"
#include "cuda/refusals.hpp"
#include "cuda/sm80/spike_resident_index.hpp"
#include "cuda/sm80/spike_resident_nets.hpp"
#include "cuda/sm80/spike_resident_warpgroup.hpp"

namespace convoy::cuda::sm80 {
namespace {

// More images would not use the weights of linear layers better.
constexpr int most_batch = 160;
constexpr Index too_many_bytes = Index{1} << 30;

Index up(Index value, Index unit) {
  return (value + unit - 1) / unit * unit;
}
Index in_eights(Index channels) {
  return (channels + 7) / 8;
}

// Lays the layers out one by one. Sizes saturate: what does not fit is only counted.
class Builder {
 public:
  Builder(const Chain& chain, int team, TaskSizes tasks, int batch, bool tight)
      : chain_(chain), tight_(tight), steps_(chain.steps()) {
    at_.tasks = tasks;
    at_.team = team;
    at_.batch = batch;
    at_.steps = static_cast<int>(steps_);
    at_.size = static_cast<int>(chain.size());
    while (at_.convolutions < at_.size &&
           !is_linear_stage(chain, static_cast<std::size_t>(at_.convolutions)))
      ++at_.convolutions;
    for (int i = 0; i < at_.size; ++i) layer(i);
    place();
  }

  Size bytes() const { return shared_; }
  /// With the weights of linear layers.
  Size bytes_of_all() const { return shared_ + linear_; }
  /// Of what fits.
  const ResidentLayout& layout() const { return at_; }

 private:
  struct Map {  // spikes, channel-last; of a linear layer's input a row an image
    Size base, step, row, column;
    Index units = 0;  // of a pixel
  };

  const Stage& stage(int i) const { return chain_[static_cast<std::size_t>(i)]; }
  // Behind an odd number of units the rows of eight pixels lie in different banks.
  Index pitch(Index units) const { return tight_ ? units : units | 1; }

  void layer(int i) {
    const Stage& s = stage(i);
    const Shapes shapes = shapes_of(s);
    const bool last = i + 1 == at_.size, linear = i >= at_.convolutions;
    ResidentLayer& l = at_.layers[static_cast<std::size_t>(i)];
    l.k = clip(s.k);
    l.channel_tiles = clip(in_eights(s.k));
    l.pool = s.pool.has_value();
    l.out_h = clip(shapes.out_h);
    l.out_w = clip(shapes.out_w);
    l.mean = last && chain_.mean;
    l.leaky = s.act.kind == Activation::Kind::lif;
    l.soft = s.soft;
    l.tau = l.leaky ? s.act.tau() : 1;
    l.rate = l.leaky ? 1 / l.tau : 0;
    l.threshold = s.act.threshold();
    l.counts = chain_.mean && i + 2 == at_.size;
    l.stores = !last;
    if (i == 0 && linear) features(l, s);
    if (i == 0 && !linear)
      first(l, s, shapes);
    else if (linear)
      linear_layer(l, i);
    else
      convolution(l, s, shapes);
    if (last) return;
    if (i + 1 < at_.convolutions)
      map_behind(l, stage(i + 1), shapes, s.k);
    else
      features_behind(l, i, shapes, s.k);
  }

  void first(ResidentLayer& l, const Stage& s, const Shapes& shapes) {
    ResidentImage& image = at_.image;
    image.h = clip(s.h), image.w = clip(s.w), image.c = clip(s.c);
    image.top = clip(s.pad.top), image.left = clip(s.pad.left);
    image.ones = !(s.pad == Padding(0));
    const Index columns = s.pool ? 2 * shapes.out_w : shapes.q;
    const Index rows = s.pool ? 2 * shapes.out_h : shapes.p;
    const auto units = [&](Index phases) {
      const Size run = (Size((s.s - 1) * s.dil.w + 1) + (phases - 1) * s.stride.w) *
                       (s.c + (image.ones ? 1 : 0));
      return (run.value() + 7) / 8;
    };
    const auto products = [&](Index phases) { return (Size(s.r) * units(phases) + 1).value() / 2; };
    l.phases = products(4) <= products(2) ? 4 : 2;
    const Index groups = (columns + l.phases - 1) / l.phases;
    image.units = clip(units(l.phases));
    image.groups = clip(groups);
    image.rows = clip((rows - 1) * s.stride.h + (s.r - 1) * s.dil.h + 1);
    image.step = clip(l.phases * s.stride.w);
    image.pitch = clip(image_pitch(groups, image.units, (s.pool ? 2 : 1) * s.stride.h));
    l.products = clip(products(l.phases));
    const Size row = Size(image.pitch) * resident_unit_bytes;
    in(l, team_, 0, row * s.stride.h, Size(image.units) * resident_unit_bytes);
    taps(l, s.r, 1, image.units, row * s.dil.h, 0);
    team_ += row * image.rows;
    l.items = clip((s.pool ? rows / 2 : rows) * groups);
    l.across = image.groups;
    constants(l, Size(l.phases));
  }

  // Of a first layer that is linear: an image's values are a row of features.
  void features(ResidentLayer& l, const Stage& s) {
    ResidentImage& image = at_.image;
    image.h = image.w = image.rows = image.groups = image.step = 1;
    image.c = clip(s.c);
    image.units = image.pitch = clip(in_eights(s.c));
    map_.units = in_eights(s.c);
    map_.row = Size(map_.units | 1) * resident_unit_bytes;
    feature_bytes(0) = map_.row * at_.batch;
    l.held = true;
  }

  void convolution(ResidentLayer& l, const Stage& s, const Shapes& shapes) {
    l.products = clip((Size(s.r) * s.s * map_.units + 1).value() / 2);
    in(l, map_.base, map_.step, map_.row * s.stride.h, map_.column * s.stride.w);
    taps(l, s.r, s.s, map_.units, map_.row * s.dil.h, map_.column * s.dil.w);
    l.items = clip(s.pool ? shapes.out_h * shapes.out_w : shapes.p * shapes.q);
    l.across = clip(s.pool ? shapes.out_w : shapes.q);
    constants(l, 1);
  }

  void linear_layer(ResidentLayer& l, int i) {
    l.products = clip((map_.units + 1) / 2);
    in(l, 0, map_.step, map_.row, 0);
    taps(l, 1, 1, map_.units, 0, 0);
    l.across = 1;
    l.weights = clip(linear_.value());
    linear_ += Size(l.products) * l.channel_tiles * 512;
    tables(l);
    if (l.mean) feature_bytes(i + 1) = std::max(feature_bytes(i + 1), Size(at_.batch) * l.k * 4);
  }

  void in(ResidentLayer& l, Size base, Size step, Size row, Size column) const {
    l.in = clip(base.value());
    l.in_step = clip(step.value());
    l.in_row = clip(row.value());
    l.in_column = clip(column.value());
  }

  static void taps(ResidentLayer& l, Index h, Index w, Index units, Size row, Size column) {
    l.taps_h = clip(h);
    l.taps_w = clip(w);
    l.tap_units = clip(units);
    l.tap_row = clip(row.value());
    l.tap_column = clip(column.value());
  }

  // Units from row to row such that groups that follow each other lie in different banks where the
  // next one begins a row, `rows` further down.
  Index image_pitch(Index groups, Index units, Index rows) const {
    if (!tight_ && units == 1)
      for (Index pitch = groups; pitch < groups + 8; ++pitch)
        if ((rows * pitch - groups) % 8 == 0) return pitch;
    return groups * units;
  }

  void tables(ResidentLayer& l) {
    l.offsets = clip(constants_.value());
    constants_ += Size(up(l.products, 2)) * 8;
    l.bias = clip(constants_.value());
    constants_ += Size(l.channel_tiles) * 32;
  }
  void constants(ResidentLayer& l, Size phases) {
    tables(l);
    l.weights = clip(constants_.value());
    constants_ += Size(l.products) * l.channel_tiles * phases * 512;
  }

  // The team's maps of the spikes that a convolution reads.
  void map_behind(ResidentLayer& l, const Stage& next, const Shapes& shapes, Index k) {
    map_.units = in_eights(k);
    map_.column = Size(pitch(map_.units)) * resident_unit_bytes;
    map_.row = map_.column * (shapes.out_w + next.pad.left + next.pad.right);
    map_.step = map_.row * (shapes.out_h + next.pad.top + next.pad.bottom);
    map_.base = team_;
    l.out = clip((map_.base + map_.row * next.pad.top + map_.column * next.pad.left).value());
    out(l, map_.step, map_.row, map_.column);
    team_ += map_.step * steps_;
    at_.clear = at_.clear || !(next.pad == Padding(0));
  }

  // What all images of a round hand to a linear layer.
  void features_behind(ResidentLayer& l, int i, const Shapes& shapes, Index k) {
    const Index units = in_eights(k);
    map_.units = (Size(shapes.out_h) * shapes.out_w * units).value();
    map_.column = 0;
    const Index steps = l.counts ? 1 : steps_;
    map_.row = Size((Size(map_.units) * steps).value() | 1) * resident_unit_bytes;
    map_.step = Size(map_.units) * resident_unit_bytes;
    l.out_features = true;
    l.out_image = clip(map_.row.value());
    out(l, map_.step, Size(units) * resident_unit_bytes * shapes.out_w,
        Size(units) * resident_unit_bytes);
    Size& bytes = feature_bytes(i + 1);
    bytes = std::max(bytes, map_.row * at_.batch);
  }

  void out(ResidentLayer& l, Size step, Size row, Size column) const {
    l.out_step = clip(step.value());
    l.out_row = clip(row.value());
    l.out_column = clip(column.value());
  }

  // As ResidentLayout::parts has it.
  Size& feature_bytes(int boundary) { return features_[(boundary - at_.convolutions) % 2]; }

  void place() {
    const auto whole = [](Size size) { return Size(up(size.value(), 128)); };
    team_ = whole(team_);
    const Size even = whole(constants_), odd = even + whole(features_[0]);
    at_.constants_bytes = clip(constants_.value());
    at_.linear_bytes = clip(linear_.value());
    at_.parts[0] = clip(even.value());
    at_.parts[1] = clip(odd.value());
    at_.team_bytes = clip(team_.value());
    shared_ = odd + std::max(team_ * (resident_warps / at_.team), whole(features_[1]));
    at_.shared_bytes = clip(shared_.value());
  }

  static int clip(Index value) { return static_cast<int>(std::min<Index>(value, too_many_bytes)); }

  const Chain& chain_;
  bool tight_;
  Index steps_;
  ResidentLayout at_;
  Map map_;
  Size constants_, linear_, team_, features_[2], shared_;
};

Reasons refuse_stage(const Chain& chain, std::size_t i) {
  const Stage& stage = chain[i];
  const bool last = i + 1 == chain.size();
  Reasons why;
  Refusals refusals(stage, why);
  refusals.no(
      stage.layout != Layout::nhwc && !(stage.c == 1 && i == 0) && !is_linear_stage(chain, i),
      "NCHW");
  refusals.no(!stage.act.is_neuron() && !(last && chain.mean),
              "no neuron, and not the mean that ends a chain");
  if (i == 0) {
    refusals.no(stage.dtype != DType::u8, "the input is not u8 images");
    refusals.no(!stage.hold && stage.t > 1, "u8 images are held over the steps: expected +hold");
    refusals.no(!stage.act.is_neuron(), "no neuron in the first stage");
  } else if (is_linear_stage(chain, i)) {
    refusals.no(
        stage.pool.has_value() || !(stage.pad == Padding(0)) || !(stage.stride == Extent(1)),
        "a linear layer with a pool, padding or a stride");
  } else {
    refusals.no(is_linear_stage(chain, i - 1), "a convolution after a linear layer");
    refusals.no(last && chain.mean, "the mean of a convolution");
  }
  return why;
}

// The first batch that fits, or a team of 0.
ResidentLayout lay_out(const Chain& chain, int team, bool tight, Index shared_bytes) {
  for (int batch = most_batch; batch > 0; batch -= batch > tile_rows ? tile_rows : 8) {
    const Builder builder(chain, team, many_tasks, batch, tight);
    if (builder.bytes().fits(shared_bytes) && builder.layout().linear_bytes < too_many_bytes)
      return builder.layout();
  }
  return {};
}

// Of few images: rounds of half a tile with the weights of linear layers beside them, else of one.
ResidentLayout lay_out_few(const Chain& chain, int team, bool tight, Index shared_bytes) {
  const Builder half(chain, team, few_tasks, tile_rows / 2, tight);
  ResidentLayout layout = half.layout();
  if (layout.linear_bytes > 0 && half.bytes_of_all().fits(shared_bytes)) {
    layout.linear_at = layout.shared_bytes;
    layout.shared_bytes += layout.linear_bytes;
    return layout;
  }
  const Builder whole(chain, team, few_tasks, tile_rows, tight);
  const bool fits =
      whole.bytes().fits(shared_bytes) && whole.layout().linear_bytes < too_many_bytes;
  return fits ? whole.layout() : ResidentLayout{};
}

// Three warpgroups with an image each; the same round for all three.
ResidentLayout of_warpgroups(ResidentLayout layout, const TaskSizes& tasks) {
  const bool few = tasks == few_tasks;
  layout.tasks = tasks;
  layout.warpgroups = true;
  layout.team = warpgroup_warps;
  layout.team_bytes = warpgroup_bytes;
  layout.batch = few ? FewByWarpgroup::batch : LinearByWarpgroup::batch;
  const auto bytes_of = [&](const ResidentLayer& l) {
    const int units = few ? l.tap_units : layout.steps * l.tap_units;
    return static_cast<int>(
        up(Index{units} * (few ? FewByWarpgroup::unit_bytes : LinearByWarpgroup::unit_bytes), 128));
  };
  layout.parts[0] = static_cast<int>(up(layout.constants_bytes, 128));
  layout.parts[1] = layout.parts[0] + bytes_of(layout.layers[2]);
  layout.shared_bytes =
      layout.parts[1] + std::max(resident_warpgroups * warpgroup_bytes, bytes_of(layout.layers[3]));
  return layout;
}

}  // namespace

bool is_linear_stage(const Chain& chain, std::size_t i) {
  const Stage& stage = chain[i];
  const bool one = stage.h == 1 && stage.w == 1 && stage.r == 1 && stage.s == 1;
  return one && (i > 0 || (!stage.pool && stage.pad == Padding(0)));
}

std::vector<ResidentLayout> resident_layouts(const Chain& chain, const DeviceFacts& device) {
  const auto shared = static_cast<Index>(device.shared_bytes);
  std::vector<ResidentLayout> layouts;
  for (const bool tight : {false, true}) {
    for (const auto lay : {lay_out, lay_out_few})
      for (int team = 1; team <= resident_warps; team *= 2)
        if (ResidentLayout layout = lay(chain, team, tight, shared); layout.team > 0) {
          layout.compiled = compiled_net(layout);
          layouts.push_back(layout);
        }
    if (!layouts.empty()) break;
  }
  if (device.major == 9 && device.minor == 0 && !layouts.empty() && layouts.front().compiled == 1)
    for (const TaskSizes& tasks : {few_tasks, many_tasks})
      layouts.push_back(of_warpgroups(layouts.front(), tasks));
  return layouts;
}

void refuse_resident(const Chain& chain, const DeviceFacts& device, Reasons& why) {
  if (device.major < 8)
    why.push_back(
        fmt::format("compute capability {}.{}, expected 8.0 or later", device.major, device.minor));
  if (chain.size() > most_layers) {
    why.push_back(fmt::format("{} stages, expected at most {}", chain.size(), most_layers));
    return;
  }
  for (std::size_t i = 0; i < chain.size(); ++i)
    for (std::string& reason : refuse_stage(chain, i))
      why.push_back(chain.size() == 1 ? std::move(reason)
                                      : fmt::format("stage {}: {}", i + 1, reason));
  if (chain.mean && chain.size() < 2) why.emplace_back("the mean of the first stage");
  if (chain.mean && chain.steps() > most_counted_steps)
    why.push_back(fmt::format("{} steps, of which the mean counts at most {}", chain.steps(),
                              most_counted_steps));
  if (!why.empty() || !resident_layouts(chain, device).empty()) return;
  const Size least = Builder(chain, resident_warps, many_tasks, 8, true).bytes();
  why.push_back(fmt::format(
      "its weights and spikes take {} bytes of shared memory, expected at most {}",
      least.fits() ? fmt::format("{}", least.value()) : "more than 2^60", device.shared_bytes));
}

}  // namespace convoy::cuda::sm80
