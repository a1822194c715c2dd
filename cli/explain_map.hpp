// The options of `convoy explain` that show a kernel from inside: --map, --smem, --pipe.
#pragma once

#include <string>

#include "command.hpp"

namespace convoy::cli {

struct MapArguments {
  bool map = false, smem = false, pipe = false;
  std::string at, gemm, block;
  int thread = -1;
  Index step = -1;  // -1: not given

  void add_to(Command& command);
  /// Whether any of them is given.
  bool wanted() const;
};

/// What of explain's own options these read, too.
struct MapOf {
  std::string stage, device, kernel, tile;
  int threads = 0;
  bool strict = false, json = false;
};
void run_explain_map(const MapArguments& arguments, const MapOf& of);

}  // namespace convoy::cli
