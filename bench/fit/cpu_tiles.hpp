// Tiles of the CPU's kernels as bench/tiles_cpu.py measured them, and what the cost models say of
// them with constants that are tried.
#pragma once

#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "cpu/shared/core_costs.hpp"

namespace convoy::bench {

struct CpuTile {
  const Kernel* kernel;
  Tile tile;
  double microseconds;
};
struct CpuStage {
  std::string text;
  Stage stage;
  Machine machine;             // that it was measured on
  std::vector<CpuTile> tiles;  // at least one
  double best;                 // microseconds
};

/// A result's stages with those of their tiles that exist now. Throws std::runtime_error where the
/// file cannot be read or none of a stage's tiles exists any more.
std::vector<CpuStage> cpu_tiles(const std::string& path);

/// The stage's machine with these constants, which must outlive it.
Machine with_costs(const CpuStage& stage, const CoreCosts& costs);

/// Of each measured tile.
std::vector<double> predicted_microseconds(const CpuStage& stage, const CoreCosts& costs);

/// What selection chooses with these constants. Where that was not measured (the models put it at
/// more than four times the choice then), microseconds are those of the slowest measured tile.
struct CpuPick {
  std::string kernel, tile;
  double microseconds = 0;
  bool measured = false;
  std::string name() const { return kernel + " " + tile; }
};
CpuPick pick(const CpuStage& stage, const CoreCosts& costs);

/// What the picks take over the best of all tiles.
struct CpuRegret {
  double mean = 1, worst = 1;  // geometric mean
};
CpuRegret regret(const std::vector<CpuStage>& stages, const CoreCosts& costs);

}  // namespace convoy::bench
