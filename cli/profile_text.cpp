#include "profile_text.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/printable.hpp"

namespace convoy::cli {
namespace {

std::string in_bytes(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes * 1e-3);
  if (bytes < 1e9) return fmt::format("{:.2f} MB", bytes * 1e-6);
  return fmt::format("{:.2f} GB", bytes * 1e-9);
}

}  // namespace

std::string to_text(const inspect::NetworkProfile& profile) {
  std::size_t name = 5, kernel = 6;
  for (const inspect::LayerProfile& layer : profile.layers) {
    name = std::max(name, printable(layer.report.name).size());
    kernel = std::max(kernel, layer.report.kernel.size());
  }
  std::string text =
      fmt::format("\nprofile of {} images\n{:<{}}  {:<{}}  {:>10}  {:>6}  {:>10}  {:>10}  {:>7}\n",
                  profile.images, "layer", name, "kernel", kernel, "time us", "share", "bytes",
                  "floor us", "x floor");
  for (const inspect::LayerProfile& layer : profile.layers) {
    text += fmt::format("{:<{}}  {:<{}}  ", printable(layer.report.name), name, layer.report.kernel,
                        kernel);
    if (layer.timed)
      text += fmt::format("{:>10.1f}  {:>5.1f}%  {:>10}  {:>10.2f}  {:>7.2f}\n",
                          layer.seconds * 1e6, 100 * layer.share, in_bytes(layer.bytes),
                          layer.floor_seconds * 1e6, layer.times_floor());
    else
      text += fmt::format("in the time of {}\n",
                          printable(profile.layers[layer.kernel_first].report.name));
  }
  text += fmt::format(
      "floor: the larger of a direct convolution's operations at {:.4g} GFLOP/s and bytes at "
      "{:.4g} GB/s.\nbytes: the weights, and x and y unless they stay inside one kernel.\n",
      profile.machine.peak_flops * 1e-9, profile.machine.memory_bandwidth * 1e-9);
  for (const inspect::LayerProfile& layer : profile.layers)
    if (!layer.why.empty())
      text += fmt::format("{} by {}: {}\n", printable(layer.report.name), layer.report.kernel,
                          layer.why);
  return text;
}

nlohmann::ordered_json to_json(const inspect::NetworkProfile& profile) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const inspect::LayerProfile& layer : profile.layers) {
    nlohmann::ordered_json json = {{"name", layer.report.name}, {"kernel", layer.report.kernel}};
    if (layer.timed) {
      json["seconds"] = layer.seconds;
      json["share"] = layer.share;
      json["bytes"] = layer.bytes;
      json["operations"] = layer.operations;
      json["floor_seconds"] = layer.floor_seconds;
      json["times_floor"] = layer.times_floor();
    } else {
      json["timed_with"] = profile.layers[layer.kernel_first].report.name;
    }
    json["why"] = layer.why;
    layers.push_back(std::move(json));
  }
  return {{"images", profile.images},
          {"seconds", profile.seconds},
          {"peak_gflops", profile.machine.peak_flops * 1e-9},
          {"bandwidth", profile.machine.memory_bandwidth},
          {"layers", layers}};
}

}  // namespace convoy::cli
