// What `explain --map`, `--smem` and `--pipe` print: as text, and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "inspect/kernel_map/kernel_map.hpp"

namespace convoy::inspect {

/// What is asked of a map; the first of these that is set decides.
struct MapPoint {
  std::optional<OutputIndex> at;                           // --at n,p,q,k
  std::optional<std::vector<Index>> gemm;                  // --gemm m,k or m,k,filter
  std::optional<int> thread;                               // --thread T
  Index block_x = 0, block_y = -1, block_t = 0, step = 0;  // --block X[,Y[,T]] --step I
};

using Json = nlohmann::ordered_json;

/// Sizes, grid, order of tiles, and the point that was asked for. Throws Error for a point that
/// there is not.
std::string map_text(const KernelMap& map, const MapPoint& point);
Json map_json(const KernelMap& map, const MapPoint& point);

std::string to_text(const SharedMemoryMap& map);
Json to_json(const SharedMemoryMap& map);
std::string to_text(const Pipeline& pipeline);
Json to_json(const Pipeline& pipeline);

}  // namespace convoy::inspect
