#include "network/load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/failure.hpp"
#include "core/file.hpp"
#include "core/printable.hpp"
#include "network/flow.hpp"

namespace convoy::network {
namespace {

/// Columns from PyTorch's order (C, pixel) to (pixel, C), in each of `rows` rows.
std::vector<float> channels_last(const std::vector<float>& w, Index rows, Index channels,
                                 Index pixels) {
  std::vector<float> result(w.size());
  auto to = result.begin();
  for (Index row = 0; row < rows; ++row)
    for (Index pixel = 0; pixel < pixels; ++pixel)
      for (Index c = 0; c < channels; ++c)
        *to++ = w[static_cast<std::size_t>((row * channels + c) * pixels + pixel)];
  return result;
}

void fold(io::ParameterSource& parameters, const NetworkLayer& layer, LayerWeights& weights) {
  const Index k = layer.stage.k;
  const std::string meaning = fmt::format("k{}", k);
  const auto read = [&](const char* what) {
    return parameters.read(layer.batchnorm + "." + what, {k}, meaning);
  };
  std::vector<float> gamma = read("weight"), beta = read("bias"), mean = read("running_mean"),
                     variance = read("running_var");
  for (const float value : variance)
    if (value < 0)
      throw Error(
          fmt::format("{}: {} is negative, expected variances. Check that it is the right file.",
                      parameters.name_of(layer.batchnorm + ".running_var"), value));
  if (weights.bias.empty()) weights.bias.assign(static_cast<std::size_t>(k), 0.0F);
  const auto view = [&](std::vector<float>& values) { return TensorView::of(values.data(), {k}); };
  const Stage& s = layer.stage;
  fold_batchnorm(TensorView::of(weights.w.data(), {k, s.r, s.s, s.c / s.groups}),
                 view(weights.bias), view(gamma), view(beta), view(mean), view(variance));
  // Each number was finite; scaled by gamma / sqrt(variance) it may not be.
  for (const std::vector<float>* values : {&weights.w, &weights.bias})
    if (!std::all_of(values->begin(), values->end(), [](float v) { return std::isfinite(v); }))
      throw Error(
          fmt::format("{}: folding it into {} gives numbers beyond fp32, expected finite numbers. "
                      "Was the training unstable?",
                      parameters.name_of(layer.batchnorm), printable(layer.name)));
}

// The text of network.txt. A text that parse_network refuses is, from a file, a wrong file.
NetworkText parsed(std::string_view text, const std::string& file) try {
  return parse_network(text, file);
} catch (const Error& error) {
  if (error.code() != StatusCode::invalid_argument) throw;
  throw InvalidFile(error.what());
}

}  // namespace

Plane plane_before(const NetworkText& network, std::size_t i) {
  const Index before = first_input(network, i);
  if (before < 0) return {network.h, network.w, network.c};
  const Stage& source = network.layers[static_cast<std::size_t>(before)].stage;
  const Shapes shapes = shapes_of(source);
  return {shapes.out_h, shapes.out_w, source.k};
}

std::vector<LayerWeights> load_weights(const NetworkText& network,
                                       io::ParameterSource& parameters) {
  std::vector<LayerWeights> all(network.layers.size());
  std::vector<bool> flat(all.size());  // whether a layer gives a vector
  for (std::size_t i = 0; i < all.size(); ++i) {
    const NetworkLayer& layer = network.layers[i];
    const Index before = first_input(network, i);
    const bool linear = before >= 0 && flat[static_cast<std::size_t>(before)];
    flat[i] = layer.flatten || linear;
    if (layer.flatten) continue;
    const Stage& s = layer.stage;
    LayerWeights& weights = all[i];
    const Index channels = s.c / s.groups;
    const std::string meaning = linear ? fmt::format("{} outputs x {} inputs", s.k, s.c)
                                       : fmt::format("k{} r{} s{} c{}", s.k, s.r, s.s, channels);
    const std::vector<Index> shape =
        linear ? std::vector<Index>{s.k, s.c} : std::vector<Index>{s.k, channels, s.r, s.s};
    weights.w = parameters.read(layer.name + ".weight", shape, meaning);
    if (before >= 0 && network.layers[static_cast<std::size_t>(before)].flatten) {
      const Plane plane = plane_before(network, static_cast<std::size_t>(before));
      weights.w = channels_last(weights.w, s.k, plane.c, plane.h * plane.w);
    } else {
      weights.w = channels_last(weights.w, s.k, channels, s.r * s.s);
    }
    // With a batch-norm the layer's own bias may be missing, as PyTorch users leave it out.
    if (!s.bias && parameters.has(layer.name + ".bias"))
      throw Error(fmt::format(
          "{}: found a bias, but {} has no +bias. Add +bias to the layer, or remove the parameter.",
          parameters.name_of(layer.name + ".bias"), printable(layer.name)));
    const bool own_bias =
        s.bias && (layer.batchnorm.empty() || parameters.has(layer.name + ".bias"));
    if (own_bias)
      weights.bias = parameters.read(layer.name + ".bias", {s.k}, fmt::format("k{}", s.k));
    if (!layer.batchnorm.empty()) fold(parameters, layer, weights);
  }
  return all;
}

Model read_model(const std::string& folder, Index steps) {
  if (folder.empty())
    throw Error("model: found an empty name, expected the folder of network.txt.");
  const std::string file = folder + "/network.txt";
  const auto bytes = read_file(file, std::size_t{1} << 20);  // as parse_network takes
  Model model{parsed(text_of(bytes), file), {}};
  if (steps > 0) {
    model.text.steps = steps;
    model.text = completed(std::move(model.text));  // layers hold the steps too
  }
  io::ParameterFolder parameters(folder);
  model.weights = load_weights(model.text, parameters);
  return model;
}

}  // namespace convoy::network
