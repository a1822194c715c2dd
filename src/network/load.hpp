// The weights of a network, in the order that kernels want.
#pragma once

#include <string>
#include <vector>

#include "convoy/network.hpp"
#include "io/weights.hpp"

namespace convoy::network {

struct LayerWeights {
  std::vector<float> w;     // [K,R,S,C/groups]; after flatten [K,H,W,C], the columns' order of NHWC
  std::vector<float> bias;  // [K]; empty without the rider
};

/// What a network is made of.
struct Model {
  NetworkText text;
  std::vector<LayerWeights> weights;  // of each layer; none of flatten
};

/// Reads every parameter of the network (flatten layers get none), puts filters from PyTorch's
/// (K,C,R,S) into (K,R,S,C) and folds batch-norms. Throws Error naming parameter, count and
/// meaning.
std::vector<LayerWeights> load_weights(const NetworkText& network, io::ParameterSource& parameters);

/// A model folder: network.txt and its parameters. With `steps` it runs so many time steps,
/// whatever the text says. Throws Error for a file that is missing or wrong.
Model read_model(const std::string& folder, Index steps = 0);

/// [h,w,c] of what `flatten` layer i gets; the linear layer behind it has h*w*c columns.
struct Plane {
  Index h = 0, w = 0, c = 0;
};
Plane plane_before(const NetworkText& network, std::size_t i);

}  // namespace convoy::network
