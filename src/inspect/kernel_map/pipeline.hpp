// The pipeline of a CTA's tile: what is loaded where, what is multiplied, who waits for whom. What
// `explain --pipe` shows.
#pragma once

#include <string>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::inspect {

/// Who takes part, and what each waits for.
struct PipelineActor {
  std::string name;  // "producer of pixels 0"
  int threads = 0;
  std::string does, waits;
};

/// A ring of slots in shared memory.
struct PipelineRing {
  std::string name;  // "pixels"
  int slots = 0;
  int slot_bytes = 0;
  Index loads = 0;
};

/// A load into a slot.
struct PipelineLoad {
  int ring = 0;
  Index load = 0;  // its number
  int slot = 0;
  std::string what;  // "tap (0, 1) of channels 0-31"
};

enum class PipelinePhase { prologue, loop, drain };
/// One line of the chart, in order of time. Of the prologue: loads alone.
struct PipelineLine {
  PipelinePhase phase = PipelinePhase::prologue;
  Index step = -1;                  // that is multiplied; -1: none
  std::vector<int> math_slots;      // of each ring that it reads
  std::vector<PipelineLoad> loads;  // begun under it
  std::string waits;
};

struct Pipeline {
  std::string kernel, tile;
  std::string per = "a tile";  // what steps and loads are counted of
  Index steps = 0;
  Index tiles = 1;   // that a CTA takes at most, one after the other
  int prologue = 0;  // loads of the first ring before the first product
  std::vector<PipelineRing> rings;
  std::vector<PipelineActor> actors;
  std::vector<PipelineLine> lines;  // of the first tile
  Index left_out = 0;               // lines in the middle that are not in `lines`
  std::size_t left_out_at = 0;      // before this one
  std::vector<std::string> notes;
};

}  // namespace convoy::inspect
