#include "draw_graph.hpp"

#include <algorithm>

#include "graph/graph.hpp"
#include "network/builder.hpp"

namespace convoy {
namespace {

using Value = GraphBuilder::Value;

class Drawer {
 public:
  Drawer(std::uint64_t number, const DrawOptions& options) : random_(number), options_(options) {
    steps_ = random_.chance(0.3) ? random_.between(2, 3) : 1;
    drawn_.builder = GraphBuilder(steps_);
  }

  DrawnGraph draw() {
    const Index inputs = random_.chance(0.25) ? 2 : 1;
    for (Index i = 0; i < inputs; ++i) input(i);
    const Index operators = random_.between(2, options_.operators);
    for (Index i = 0; i < operators; ++i) add_one();
    add_convolution();
    while (!has_layer_) {  // all that was tried had too large sums
      keep(g().activation(any().value, clip_to(-2, 3)), 3);
      add_convolution();
    }
    outputs();
    return std::move(drawn_);
  }

 private:
  struct Known {
    Value value;
    double largest = 0;  // of what it holds
  };

  const graph::Value& facts(Value value) const { return graph_of(drawn_.builder).values[value.id]; }
  GraphBuilder& g() { return drawn_.builder; }

  void input(Index i) {
    std::vector<Index> axes{random_.between(3, 9), random_.between(3, 9), channels(6)};
    if (i > 0 && random_.chance(0.3)) axes = {random_.between(1, 20)};
    known_.push_back({g().input("x" + std::to_string(i), options_.type, axes), 3});
    drawn_.input_types.push_back(options_.type);
    drawn_.input_axes.push_back(axes);
  }

  /// Late values are more likely to be read.
  const Known& any() {
    const auto size = static_cast<Index>(known_.size());
    return known_[static_cast<std::size_t>(random_.chance(0.6) ? size - 1
                                                               : random_.between(0, size - 1))];
  }

  std::vector<float> integers(Index count, Index most) {
    std::vector<float> all;
    for (Index i = 0; i < count; ++i)
      all.push_back(static_cast<float>(random_.between(-most, most)));
    return all;
  }
  bool half() const { return options_.type != DType::f32; }
  /// A number of channels; of 16 bits most are what Tensor Cores and slices take, multiples of 8.
  Index channels(Index most) {
    return half() && random_.chance(0.7) ? 8 * random_.between(1, 5) : random_.between(1, most);
  }
  /// Weights of `filters` filters, [K, each]: -1, 0 and 1, of 16 bits about three that are not 0.
  std::vector<float> weights(Index filters, Index each) {
    std::vector<float> all = integers(filters * each, 1);
    if (half())
      for (float& weight : all)
        if (!random_.chance(4.5 / static_cast<double>(each))) weight = 0;
    return all;
  }
  /// The largest sum of such a layer, with its bias of at most 3.
  static double largest_sum(const std::vector<float>& weights, Index filters, double largest) {
    const auto each = static_cast<std::ptrdiff_t>(weights.size()) / filters;
    double most = 0;
    for (auto from = weights.begin(); from != weights.end(); from += each)
      most = std::max(most, static_cast<double>(
                                std::count_if(from, from + each, [](float w) { return w != 0; })));
    return most * largest + 3;
  }
  /// Such integers are exact in the type, in fp32 also behind three steps of a neuron.
  bool fits(double largest) const {
    return largest <= (options_.type == DType::f16    ? 2048
                       : options_.type == DType::bf16 ? 256
                                                      : 4e6);
  }
  void keep(Value value, double largest) { known_.push_back({value, largest}); }

  void add_one() {
    switch (random_.between(0, 9)) {
      case 0:
      case 1:
      case 2:
        return add_convolution();
      case 3:
      case 4:
        return add_activation();
      case 5:
        return add_pool();
      case 6:
        return add_concat();
      case 7:
        return add_slice();
      case 8:
        return add_linear();
      default:
        return add_batch_norm();
    }
  }

  void add_convolution() {
    const Known x = any();
    const graph::Value& v = facts(x.value);
    if (!v.is_image()) return add_linear();
    const Index r = random_.between(1, std::min<Index>(3, v.h())),
                s = random_.between(1, std::min<Index>(3, v.w())), c = v.channels();
    const Index groups = random_.chance(0.2) ? c : 1,
                k = groups * (groups > 1 ? random_.between(1, 3) : channels(8));
    GraphBuilder::ConvolutionOptions options{.stride = random_.between(1, 2),
                                             .pad = random_.between(0, 1),
                                             .groups = groups,
                                             .strict = options_.strict};
    const std::vector<float> w = weights(k, r * s * c / groups), bias = integers(k, 3);
    const double largest = largest_sum(w, k, x.largest);
    if (!fits(largest)) return;
    has_layer_ = true;
    keep(g().convolution(
             x.value, ConstTensorView::of(w.data(), {k, r, s, c / groups}),
             random_.chance(0.7) ? ConstTensorView::of(bias.data(), {k}) : ConstTensorView(),
             options),
         largest);
  }

  void add_linear() {
    Known x = any();
    const graph::Value& v = facts(x.value);
    const Index c = v.elements(), k = channels(12);
    const std::vector<float> w = weights(k, c), bias = integers(k, 3);
    const double largest = largest_sum(w, k, x.largest);
    if (!fits(largest)) return;
    // A flattened image in PyTorch's order is read by linear layers alone.
    if (v.is_image()) x.value = g().flatten(x.value, random_.chance(0.7));
    has_layer_ = true;
    keep(
        g().linear(x.value, ConstTensorView::of(w.data(), {k, c}),
                   random_.chance(0.7) ? ConstTensorView::of(bias.data(), {k}) : ConstTensorView()),
        largest);
  }

  void add_activation() {
    const Known x = any();
    if (random_.chance(steps_ > 1 ? 0.5 : 0.15))  // one step has no axis
      return keep(g().activation(x.value, random_.chance(0.5) ? integrate_fire(1) : lif(2, 0.5F),
                                 random_.chance(0.3)),
                  1);
    if (random_.chance(0.5)) return keep(g().activation(x.value, relu), x.largest);
    keep(g().activation(x.value, clip_to(-2, 3)), 3);
  }

  void add_pool() {
    const Known x = any();
    const graph::Value& v = facts(x.value);
    if (!v.is_image() || v.h() < 2 || v.w() < 2) return;
    const bool wide = v.h() > 2 && v.w() > 2 && random_.chance(0.3);
    keep(g().max_pool(x.value, wide ? max_pool(3, 2, 1) : max_pool(2)), x.largest);
  }

  void add_concat() {
    const Known first = any();
    const graph::Value like = facts(first.value);
    std::vector<Value> parts{first.value};
    double largest = first.largest;
    for (const Known& other : known_) {
      const graph::Value& v = facts(other.value);
      if (v.h() != like.h() || v.w() != like.w() || v.is_image() != like.is_image() ||
          v.timed != like.timed || v.type != like.type || !random_.chance(0.6) || parts.size() > 4)
        continue;
      parts.push_back(other.value);  // perhaps the first one again
      largest = std::max(largest, other.largest);
    }
    if (parts.size() > 1) keep(g().concat(parts), largest);
  }

  void add_slice() {
    const Known x = any();
    const Index channels = facts(x.value).channels();
    if (channels < 2) return;
    const Index count = random_.between(1, channels - 1);
    keep(g().slice(x.value, random_.between(0, channels - count), count), x.largest);
  }

  void add_batch_norm() {
    const Known x = any();
    const graph::Value& v = facts(x.value);
    if (!v.is_image() || !fits(2 * x.largest + 8)) return;
    const Index c = v.channels();
    // The scale is gamma, and rounds to it.
    const std::vector<float> gamma = integers(c, 2), beta = integers(c, 2), mean = integers(c, 2),
                             variance(static_cast<std::size_t>(c), 1.0F);
    const auto view = [&](const std::vector<float>& numbers) {
      return ConstTensorView::of(numbers.data(), {c});
    };
    keep(g().batch_norm(x.value, view(gamma), view(beta), view(mean), view(variance), 0),
         2 * x.largest + 8);
  }

  void outputs() {
    const auto inputs = drawn_.input_axes.size();
    const Index wanted = random_.between(1, 3);
    for (Index i = 0; i < wanted; ++i) {
      const auto at =
          static_cast<std::size_t>(i == 0 ? static_cast<Index>(known_.size()) - 1
                                          : random_.between(static_cast<Index>(inputs),
                                                            static_cast<Index>(known_.size()) - 1));
      Value value = known_[at].value;
      if (facts(value).timed && random_.chance(0.5)) value = g().mean_of_steps(value);
      if (!graph_of(drawn_.builder).is_output(value.id)) g().output("y" + std::to_string(i), value);
    }
  }

  verify::Random random_;
  DrawOptions options_;
  Index steps_ = 1;
  bool has_layer_ = false;
  DrawnGraph drawn_;
  std::vector<Known> known_;
};

}  // namespace

DrawnGraph draw_graph(std::uint64_t number, const DrawOptions& options) {
  return Drawer(number, options).draw();
}

}  // namespace convoy
