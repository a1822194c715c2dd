// What every operator of a network gives for an image, as files.
#pragma once

#include <string>

#include "convoy/network.hpp"
#include "inspect/dump_files.hpp"

namespace convoy::inspect {

/// What a dump is made of.
struct DumpJob {
  std::string model;  // its folder
  std::string folder;
  Index image = 0;  // the image's place in its file, for the index
  NetworkOptions options;
};

/// Writes dbg_<operator>.bin of the network as it runs. The last operator of each layer is what the
/// network computed. What lies inside a layer never reaches memory there; it is computed by a plan
/// an operator, on what the network's layer read. `model` is the folder's. Returns the number of
/// operators. Throws Error.
Index dump_network(const DumpJob& job, network::Model model, const ConstTensorView& image);

/// Writes dbg_<operator>_ref.bin, and membranes, by the oracle, each operator on what the oracle
/// gave before.
Index dump_reference(const DumpJob& job, network::Model model, const ConstTensorView& image);

}  // namespace convoy::inspect
