#include "graph/reorder.hpp"

namespace convoy::graph {

std::vector<float> pixels_first(const std::vector<float>& w, Index rows, Index channels,
                                Index pixels) {
  std::vector<float> result(w.size());
  auto to = result.begin();
  for (Index row = 0; row < rows; ++row)
    for (Index pixel = 0; pixel < pixels; ++pixel)
      for (Index c = 0; c < channels; ++c)
        *to++ = w[static_cast<std::size_t>((row * channels + c) * pixels + pixel)];
  return result;
}

}  // namespace convoy::graph
