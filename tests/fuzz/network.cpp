// network.txt: whatever the text, an Error that names the place, or layers whose shapes follow one
// from the other.
#include "convoy/network.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "convoy/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const convoy::NetworkText network = convoy::parse_network(
        std::string_view(reinterpret_cast<const char*>(data), size), "network.txt");
    if (network.layers.empty() || network.steps < 1) std::abort();
    convoy::Index h = network.h, w = network.w, c = network.c;
    for (const convoy::NetworkLayer& layer : network.layers) {
      if (layer.flatten) {
        c *= h * w;
        h = w = 1;
        continue;
      }
      const convoy::Stage& stage = layer.stage;
      if (stage.h != h || stage.w != w || stage.c != c || layer.name.empty()) std::abort();
      const convoy::Shapes shapes = convoy::shapes_of(stage);  // throws, and so fails, if illegal
      h = shapes.out_h;
      w = shapes.out_w;
      c = stage.k;
    }
  } catch (const convoy::Error& error) {
    if (!std::string_view(error.what()).starts_with("network.txt")) std::abort();
  }
  return 0;
}
