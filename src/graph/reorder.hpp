// Parameters from PyTorch's order into memory's.
#pragma once

#include <vector>

#include "convoy/stage.hpp"

namespace convoy::graph {

/// Columns from (C, pixel) to (pixel, C), in each of `rows` rows: filters from [K,C,R,S] to
/// [K,R,S,C], and the columns of a linear layer that reads an image.
std::vector<float> pixels_first(const std::vector<float>& w, Index rows, Index channels,
                                Index pixels);

}  // namespace convoy::graph
