// A CTA's shared memory as it lies, and each warp-wide access to it: what `explain --smem` shows.
#pragma once

#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "inspect/kernel_map/banks.hpp"

namespace convoy::inspect {

/// A part of a CTA's shared memory.
struct SharedRegion {
  std::string name;  // "slot 0: pixels"
  int begin = 0;     // bytes
  int bytes = 0;
  std::string what;  // "128 rows of 64 bytes"
};

/// An access of one warp, with that of an equal layout without the swizzle, or the padding.
struct SharedAccess {
  std::string name;         // "read A"
  std::string instruction;  // "ldmatrix.x4"
  std::string who;          // "each warp, 8 times a step"
  bool store = false;
  int width = 16;                  // bytes of a lane's address
  std::vector<int> address;        // of each lane; -1: none
  std::vector<int> plain_address;  // without swizzle or padding
  BankUse use, plain;
  /// Whether ncu's counters of shared loads and stores see it: TMA's and wgmma's they do not.
  bool counted = true;
  /// Whether the figures below are upper bounds: where no lane needs a value, a predicate turns the
  /// instruction off.
  bool at_most = false;
  // Of a whole tile, all warps and places: instructions, wavefronts, and those beyond the least.
  // The picture is that of the first.
  double instructions = 0, wavefronts = 0, conflicts = 0, plain_conflicts = 0;

  BankUse use_of(const std::vector<int>& of) const {
    return bank_use(of, width, instruction.starts_with("LDS"));
  }
  /// Adds an instruction that the tile has so many times. The picture is that of the first.
  void add(const SharedAccess& one, double times) {
    if (instructions == 0) {
      address = one.address, plain_address = one.plain_address;
      use = one.use, plain = one.plain;
    }
    instructions += times;
    wavefronts += times * one.use.wavefronts;
    conflicts += times * one.use.conflicts();
    plain_conflicts += times * one.plain.conflicts();
  }
  /// Fills the figures in, where all instructions of the tile collide as the first does.
  void count(double instructions_of_tile) {
    use = use_of(address), plain = use_of(plain_address);
    instructions = instructions_of_tile;
    wavefronts = instructions * use.wavefronts;
    conflicts = instructions * use.conflicts();
    plain_conflicts = instructions * plain.conflicts();
  }
};

/// The accumulators of a thread over the tile.
struct AccumulatorRow {
  int warp = 0, lane = 0;
  int row = 0;                 // of the CTA's tile
  std::vector<int> registers;  // in the order of the columns
  std::vector<int> columns;    // of the tile
};

struct SharedMemoryMap {
  std::string kernel, tile;
  int bytes = 0;         // of a CTA
  Index tiles = 1;       // of a launch; each takes the accesses as they are counted here
  std::string layout;    // how rows lie, in a sentence
  std::string protects;  // what the swizzle or the gap is for
  std::vector<SharedRegion> regions;
  std::vector<SharedAccess> accesses;
  std::vector<AccumulatorRow> accumulators;  // of warp 0, lane 0: a line for each row of the tile
  std::string columns_are = "columns";       // what a column of the tile is: "filters"
  std::string accumulator_order;             // a sentence
  std::vector<std::string> epilogue;         // how results are gathered to 16-byte stores
};

}  // namespace convoy::inspect
