#include "spike_rule.hpp"

#include <fmt/core.h>

#include <cmath>

#include "core/threads.hpp"
#include "graph/passes.hpp"
#include "network/load.hpp"
#include "reference/reference.hpp"

namespace convoy {
namespace {

/// What the first layer reads: x' in fp32, by the operations that PyTorch does.
Tensor normalised(const NetworkText& text, const ConstTensorView& images) {
  Tensor x(DType::f32, {images.shape[0], text.h, text.w, text.c});
  const auto* const from = static_cast<const std::uint8_t*>(images.data);
  for (Index i = 0; i < x.elements(); ++i) {
    const auto c = static_cast<std::size_t>(i % text.c);
    const float mean = text.mean.empty() ? 0.0F : text.mean[text.mean.size() == 1 ? 0 : c];
    const float std = text.std.empty() ? 1.0F : text.std[text.std.size() == 1 ? 0 : c];
    x.data<float>()[i] = (static_cast<float>(from[i]) / 255.0F - mean) / std;
  }
  return x;
}

/// Output (t, n, i, j, k) of the reference and of ours; `near`: a membrane in its window is, or in
/// an earlier step was, as good as on the threshold.
void compare_neurons(const Stage& stage, const Shapes& shapes, const reference::Outputs& expected,
                     const float* ours, const std::string& name, SpikeCheck& check) {
  const double threshold = stage.act.threshold(),
               tolerance = 1e-5 * std::max(1.0, std::abs(threshold));
  const Index window = stage.pool ? 2 : 1;
  const auto near_in_window = [&](Index last, Index n, Index i, Index j, Index k) {
    for (Index t = 0; t <= last; ++t)
      for (Index p = i * window; p < std::min((i + 1) * window, shapes.p); ++p)
        for (Index q = j * window; q < std::min((j + 1) * window, shapes.q); ++q) {
          const auto at = static_cast<std::size_t>(
              (((t * stage.n + n) * shapes.p + p) * shapes.q + q) * stage.k + k);
          if (std::abs(expected.pre[at] - threshold) <= tolerance) return true;
        }
    return false;
  };
  std::size_t at = 0;
  for (Index t = 0; t < stage.t; ++t)
    for (Index n = 0; n < stage.n; ++n)
      for (Index i = 0; i < shapes.out_h; ++i)
        for (Index j = 0; j < shapes.out_w; ++j)
          for (Index k = 0; k < stage.k; ++k, ++at) {
            ++check.compared;
            if (ours[at] == expected.y[at]) continue;
            if (near_in_window(t, n, i, j, k)) {
              ++check.excused;
              check.images.insert(n);
            } else if (check.wrong.size() < 10) {
              check.wrong.push_back(fmt::format(
                  "{}: step {}, image {}, row {}, column {}, channel {}: {}, expected {}", name, t,
                  n, i, j, k, ours[at], expected.y[at]));
            }
          }
}

/// The last layer: ours is the mean over the steps, or has them still.
void compare_outputs(const Stage& stage, Index steps, const reference::Outputs& expected,
                     const Tensor& ours, SpikeCheck& check) {
  const Index values = stage.n / steps * stage.k, ours_steps = ours.elements() / values;
  double largest = 0, error = 0;
  for (Index i = 0; i < values; ++i) {
    double mean = 0, found = 0;
    for (Index t = 0; t < steps; ++t) mean += expected.y[static_cast<std::size_t>(t * values + i)];
    for (Index t = 0; t < ours_steps; ++t)
      found += static_cast<double>(ours.data<float>()[t * values + i]);
    mean /= static_cast<double>(steps);
    found /= static_cast<double>(ours_steps);
    largest = std::max(largest, std::abs(mean));
    error = std::max(error, std::abs(found - mean));
  }
  check.logit_error = error / largest;
}

}  // namespace

SpikeCheck check_spikes(const Network& network, const std::string& folder,
                        const ConstTensorView& images) {
  SpikeCheck check;
  Threads threads(default_threads());
  const NetworkText& text = network.text();
  io::ParameterFolder parameters(folder);
  const graph::Graph graph =
      graph::optimised(network::read_graph(text, parameters), [](const Stage&) { return true; });
  std::vector<const graph::Node*> nodes;
  for (const graph::Node& node : graph.nodes)
    if (node.as<graph::Fused>()) nodes.push_back(&node);
  const std::vector<Tensor> outputs = network.trace(images);
  const Tensor first = normalised(text, images);
  const float* x = first.data<float>();
  std::size_t output = 0;
  bool timed = false;
  for (std::size_t i = 0; i < text.layers.size(); ++i) {
    const NetworkLayer& layer = text.layers[i];
    if (layer.flatten) continue;
    Stage stage = layer.stage;
    const Index steps = timed && !stage.act.is_neuron() ? text.steps : 1;  // seen as images
    stage.n = images.shape[0] * steps;
    const graph::Node& node = *nodes[output];
    std::vector<float> w = graph.constant(node.in[1]), bias;
    if (node.in.size() > 2) bias = graph.constant(node.in[2]);
    Operands operands;
    operands.x = ConstTensorView::of(x, x_shape(stage));
    if (!bias.empty()) operands.bias = ConstTensorView::of(bias.data(), {stage.k});
    stage.keep.pre = true;  // the charged membranes
    const reference::Oracle oracle(
        stage, ConstTensorView::of(w.data(), {stage.k, stage.r, stage.s, stage.c / stage.groups}),
        operands, reference::Sum::exact);
    const reference::Outputs expected = oracle.all(threads);
    const Tensor& ours = outputs[output++];
    if (stage.act.is_neuron()) {
      compare_neurons(stage, oracle.shapes(), expected, ours.data<float>(), layer.name, check);
      timed = true;
    } else if (output == outputs.size()) {
      compare_outputs(stage, steps, expected, ours, check);
    }
    x = ours.data<float>();
  }
  return check;
}

}  // namespace convoy
