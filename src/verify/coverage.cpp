#include "verify/coverage.hpp"

#include <algorithm>

namespace convoy::verify {
namespace {

std::string_view name_of(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none:
      return "none";
    case Activation::Kind::relu:
      return "relu";
    case Activation::Kind::relu6:
      return "relu6";
    case Activation::Kind::clip:
      return "clip";
    case Activation::Kind::leaky:
      return "leaky";
    case Activation::Kind::if_:
      return "if";
    case Activation::Kind::lif:
      return "lif";
  }
  return "?";
}

// The stage with other sizes and the same riders.
Stage vary(const Stage& stage, Random& random) {
  Stage s = stage;
  s.n = random.between(1, 5);
  s.bias = random.chance(0.5);
  s.h = std::max<Index>(1, s.h + random.between(-2, 4));
  s.w = std::max<Index>(1, s.w + random.between(-2, 4));
  if (s.groups == 1) {
    s.c = std::max<Index>(1, s.c + random.pick<Index>({-16, 0, 0, 1, 16}));
    s.k = std::max<Index>(1, s.k + random.pick<Index>({-16, 0, 0, 1, 16}));
  }
  return s;
}

bool has_tile(const Kernel& kernel, const Stage& stage, const Machine& machine, const Tile& tile,
              Tile& found) {
  const auto fitting = fitting_kernels(stage, machine);
  if (std::find(fitting.begin(), fitting.end(), &kernel) == fitting.end()) return false;
  for (const Tile& other : kernel.tiles(stage, machine))
    if (other.name == tile.name) {
      found = other;
      return true;
    }
  return false;
}

}  // namespace

std::string epilogue_of(const Stage& stage) {
  std::string text(name_of(stage.act.kind));
  if (!stage.pool) return text;
  Pool pool = *stage.pool;
  pool.ceil = false;
  return text + (pool == max_pool(2) ? " max2" : " other pool");
}

std::vector<std::string> tails_of(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  std::vector<std::string> tails;
  if (stage.c / stage.groups % 8 != 0) tails.emplace_back("c tail");
  if (stage.k / stage.groups % 16 != 0) tails.emplace_back("k tail");
  if (shapes.p % 4 != 0 || shapes.q % 4 != 0) tails.emplace_back("pixel tail");
  if (shapes.out_h * shapes.out_w == 1) tails.emplace_back("one pixel");
  if (tails.empty()) tails.emplace_back("whole");
  return tails;
}

std::vector<Cell> cells_of(const Stage& stage, const Kernel& kernel, const Tile& tile) {
  std::vector<Cell> cells;
  for (const std::string& tail : tails_of(stage))
    cells.push_back({std::string(kernel.name()), tile.name, epilogue_of(stage), tail});
  return cells;
}

void count(const Check& check, Coverage& coverage) {
  for (const Cell& cell : cells_of(check.stage, *check.kernel, check.tile)) ++coverage[cell];
}

std::vector<Check> fill_coverage(const std::vector<Check>& planned, Index least,
                                 const Machine& machine, std::string_view only, Random& random) {
  Coverage coverage;
  // The smallest stage of each cell: variations of a large one would all be too large.
  std::map<Cell, Check> examples;
  const auto note = [&](const Check& check) {
    const Index macs = shapes_of(check.stage).macs;
    for (const Cell& cell : cells_of(check.stage, *check.kernel, check.tile)) {
      const auto [example, is_new] = examples.try_emplace(cell, check);
      if (!is_new && macs < shapes_of(example->second.stage).macs) example->second = check;
    }
  };
  for (const Check& check : planned) {
    note(check);
    count(check, coverage);
  }
  std::vector<Check> more;
  const auto take = [&](const Check& check) {
    note(check);
    const auto cells = cells_of(check.stage, *check.kernel, check.tile);
    if (std::all_of(cells.begin(), cells.end(),
                    [&](const Cell& cell) { return coverage[cell] >= least; }))
      return;
    count(check, coverage);
    more.push_back(check);
  };
  for (int draw = 0; draw < 20'000; ++draw) {
    const Stage stage = draw_stage(random, machine.device.kind);
    for (const Kernel* kernel : fitting_kernels(stage, machine))
      if (only.empty() || kernel->name() == only)
        for (const Tile& tile : kernel->tiles(stage, machine)) take({stage, kernel, tile});
  }
  // What turned up too rarely is varied. A variation may open new cells, which then need more.
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& [cell, example] : std::map<Cell, Check>(examples)) {
      for (int attempt = 0; attempt < 5000 && coverage[cell] < least; ++attempt) {
        Check check = example;
        check.stage = vary(example.stage, random);
        if (!problems(check.stage).empty() || shapes_of(check.stage).macs > 10'000'000 ||
            !has_tile(*check.kernel, check.stage, machine, example.tile, check.tile))
          continue;
        const auto cells = cells_of(check.stage, *check.kernel, check.tile);
        if (std::find(cells.begin(), cells.end(), cell) == cells.end()) continue;
        const std::size_t before = examples.size();
        take(check);
        grew = grew || examples.size() > before;
      }
    }
  }
  return more;
}

}  // namespace convoy::verify
