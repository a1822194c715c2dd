#include "network/flow.hpp"

#include <fmt/core.h>

#include <cmath>

#include "convoy/error.hpp"
#include "core/printable.hpp"
#include "core/size.hpp"

namespace convoy::network {
namespace {

void flatten(NetworkText& network, NetworkLayer layer, Flow& flow) {
  Output& from = flow.lines.back();
  if (from.flat)
    throw Error("found a second \"flatten\", expected none: its input is a vector already");
  if (from.h > (Index{1} << 40) / from.w / from.c)
    throw Error(fmt::format("found {}x{}x{} values, expected fewer for one vector", from.h, from.w,
                            from.c));
  if (!layer.from.empty())
    throw Error(
        "found from(...) with \"flatten\", expected none: it reads the layer before it. Leave from "
        "out");
  layer.name = "flatten";
  network.layers.push_back(std::move(layer));
  from.read = true;
  flow.lines.push_back({1, 1, from.h * from.w * from.c, true, from.timed});
}

/// The line that a name in `from` means.
std::size_t line_of(const NetworkText& network, const std::string& name) {
  for (std::size_t i = 0; i < network.layers.size(); ++i)
    if (network.layers[i].name == name && !network.layers[i].flatten) return i + 1;
  throw Error(fmt::format("from({}): no layer before this one has that name. Name an earlier layer",
                          printable(name)));
}

/// What the layer reads: the line before it, or those that it names, side by side.
Output input_of(const NetworkText& network, const NetworkLayer& layer, Flow& flow) {
  if (layer.from.empty()) {
    flow.lines.back().read = true;
    return flow.lines.back();
  }
  Output all;
  Size channels;
  for (const std::string& name : layer.from) {
    Output& one = flow.lines[line_of(network, name)];
    one.read = true;
    if (channels == Size(0)) all = one;
    if (one.h != all.h || one.w != all.w || one.flat != all.flat || one.timed != all.timed)
      throw Error(
          fmt::format("from: {} gives {}x{}{}{}, {} gives {}x{}{}{}: expected equal sizes, because "
                      "their channels are concatenated",
                      printable(layer.from.front()), all.h, all.w, all.flat ? ", a vector" : "",
                      all.timed ? " in each step" : "", printable(name), one.h, one.w,
                      one.flat ? ", a vector" : "", one.timed ? " in each step" : ""));
    channels += one.c;
  }
  all.c = channels.value();
  return all;
}

/// Of a layer that reads a vector: whether it is y = Wx with W [K,C], as its weights are read.
bool is_plain_linear(const Stage& stage) {
  return stage.r <= 1 && stage.s <= 1 && stage.stride == Extent(1) && stage.pad == Padding(0) &&
         stage.dil == Extent(1) && stage.groups == 1 && !stage.pool;
}

void check_new(const NetworkText& network, const std::string& name) {
  for (const NetworkLayer& other : network.layers)
    if (other.name == name)
      throw Error(
          fmt::format("a second layer \"{}\"{}. Parameters are named after it: use another name.",
                      printable(name),
                      other.line > 0 ? fmt::format(" (the first is in line {})", other.line) : ""));
}

}  // namespace

Flow input_of(const NetworkText& network) {
  if (network.dtype == DType::i32) throw Error("i32 images: expected u8, f32, f16 or bf16 ones");
  if (network.h < 1 || network.w < 1 || network.c < 1)
    throw Error(fmt::format("images of {}x{}x{} (height, width, channels): expected at least 1",
                            network.h, network.w, network.c));
  if (network.layer_type() != DType::f32 && !(network.mean.empty() && network.std.empty()))
    throw Error(fmt::format("mean and std with {} images: expected u8 or f32 ones",
                            to_text(network.dtype)));
  for (const auto* values : {&network.mean, &network.std}) {
    const char* const name = values == &network.mean ? "mean" : "std";
    const auto count = static_cast<Index>(values->size());
    if (count > 1 && count != network.c)
      throw Error(fmt::format("{} has {} numbers, expected one or {} (the channels)", name, count,
                              network.c));
    for (const float value : *values)
      if (!std::isfinite(value))
        throw Error(fmt::format("{} {}: expected a finite number", name, value));
  }
  for (const float value : network.std)
    if (value == 0) throw Error("found std 0, expected another number: values are divided by it");
  return {{{network.h, network.w, network.c}}};
}

void check_name(std::string_view name) {
  if (name.empty())
    throw Error("found a layer without a name, expected one: its parameters are named after it.");
  if (!is_printable(name))
    throw Error(
        fmt::format("\"{}\": found a control character, or bytes that are not UTF-8, in a "
                    "name, expected neither: a name is a word of network.txt",
                    printable(name)));
}

void add_layer(NetworkText& network, NetworkLayer layer, Flow& flow) {
  if (network.layers.size() >= most_layers)
    throw Error(fmt::format("found more than {0} layers, expected at most {0}", most_layers));
  if (layer.flatten) return flatten(network, std::move(layer), flow);
  check_name(layer.name);
  check_new(network, layer.name);
  if (!layer.batchnorm.empty()) check_name(layer.batchnorm);
  const Output x = input_of(network, layer, flow);
  Stage& stage = layer.stage;
  if (x.flat) {
    if (!is_plain_linear(stage))
      throw Error(fmt::format(
          "{}: a linear layer (after flatten) has no r, s, stride, pad, dil, groups and "
          "pool: leave them out",
          printable(layer.name)));
    stage.r = stage.s = 1;
  }
  if (stage.keep.any() || stage.norm || stage.layout != Layout::nhwc || stage.out)
    throw Error(fmt::format("{}: found norm, keep, nchw or out, expected none of them in a network",
                            printable(layer.name)));
  if (!layer.batchnorm.empty()) stage.bias = true;
  stage.dtype = network.layer_type();
  stage.n = 1, stage.h = x.h, stage.w = x.w, stage.c = x.c;
  stage.t = 1, stage.hold = false;
  if (stage.act.is_neuron()) {
    stage.t = network.steps;
    stage.hold = !x.timed && network.steps > 1;
  }
  stage = stage.normalised();
  const std::vector<std::string> wrong = problems(stage);
  if (!wrong.empty()) {
    std::string all;
    for (const std::string& one : wrong) all += (all.empty() ? "" : "; ") + one;
    throw Error(
        fmt::format("{} on an input of {}x{}x{}: {}", printable(layer.name), x.h, x.w, x.c, all));
  }
  const Shapes shapes = shapes_of(stage);
  flow.lines.push_back(
      {shapes.out_h, shapes.out_w, stage.k, x.flat, x.timed || stage.act.is_neuron()});
  network.layers.push_back(std::move(layer));
}

void check_end(const NetworkText& network, const Flow& flow) {
  if (network.layers.empty() || network.layers.back().flatten)
    throw Error("the network has no layer that gives the outputs, expected at least one");
  for (std::size_t i = 0; i + 1 < network.layers.size(); ++i)
    if (!flow.lines[i + 1].read)
      throw Error(
          fmt::format("no layer reads the output of {}. Only the last layer gives the network's "
                      "output: name {} in a from(...), or leave it out",
                      printable(network.layers[i].name), printable(network.layers[i].name)));
}

Index first_input(const NetworkText& network, std::size_t i) {
  const NetworkLayer& layer = network.layers[i];
  return layer.from.empty() ? static_cast<Index>(i) - 1
                            : static_cast<Index>(line_of(network, layer.from.front())) - 1;
}

NetworkText completed(NetworkText network) {
  std::vector<NetworkLayer> layers;
  layers.swap(network.layers);
  if (network.w == 0) network.w = network.h;  // as in a stage
  if (network.steps < 1 || network.steps > most_steps)
    throw Error(
        fmt::format("the network's steps: {}, expected 1 to {}", network.steps, most_steps));
  const auto at = [](const std::string& place, const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      throw Error(fmt::format("the network's {}: {}", place, error.what()));
    }
  };
  Flow flow;
  at("input", [&] { flow = input_of(network); });
  for (std::size_t i = 0; i < layers.size(); ++i)
    at(fmt::format("layer {}", i + 1), [&] { add_layer(network, std::move(layers[i]), flow); });
  at(fmt::format("{} layers", layers.size()), [&] { check_end(network, flow); });
  return network;
}

}  // namespace convoy::network
