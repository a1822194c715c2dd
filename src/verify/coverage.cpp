#include "verify/coverage.hpp"

#include <algorithm>

#include "core/stage_text.hpp"
#include "plan/kernel_table.hpp"
#include "plan/select.hpp"
#include "verify/draw_chain.hpp"

namespace convoy::verify {
namespace {

// The stage with other sizes and the same riders.
Stage vary_stage(const Stage& stage, Random& random) {
  Stage s = stage;
  // Some tiles serve few images, some many.
  s.n = random.chance(0.5) ? random.between(1, 5) : std::max<Index>(1, s.n + random.between(-3, 3));
  s.bias = random.chance(0.5);
  s.h = std::max<Index>(1, s.h + random.between(-2, 4));
  s.w = std::max<Index>(1, s.w + random.between(-2, 4));
  if (s.groups == 1) {
    s.c = std::max<Index>(1, s.c + random.pick<Index>({-16, 0, 0, 1, 16}));
    s.k = std::max<Index>(1, s.k + random.pick<Index>({-16, 0, 0, 1, 16}));
  }
  return s;
}

OwnedChain vary_any(const Chain& chain, Random& random) {
  return is_one_stage(chain) ? OwnedChain(vary_stage(chain.front(), random)) : vary(chain, random);
}

Index macs_of(const Chain& chain) {
  Index macs = 0;
  for (const Stage& stage : chain.stages) macs += shapes_of(stage).macs;
  return macs;
}

bool has_tile(const Kernel& kernel, const Chain& chain, const Machine& machine, const Tile& tile,
              Tile& found) {
  const auto fitting = fitting_kernels(chain, machine);
  if (std::find(fitting.begin(), fitting.end(), &kernel) == fitting.end()) return false;
  for (const Tile& other : kernel.tiles(chain, machine))
    if (other.name == tile.name) {
      found = other;
      return true;
    }
  return false;
}

}  // namespace

std::string epilogue_of(const Chain& chain) {
  if (chain.mean) return "mean";
  const Stage& last = chain.back();
  std::string text(name_of(last.act.kind));
  if (!last.pool) return text;
  Pool pool = *last.pool;
  pool.ceil = false;
  return text + (pool == max_pool(2) ? " max2" : " other pool");
}

std::vector<std::string> tails_of(const Chain& chain) {
  bool c = false, k = false, pixels = false, one = false;
  for (const Stage& stage : chain.stages) {
    const Shapes shapes = shapes_of(stage);
    c = c || stage.c / stage.groups % 8 != 0;
    k = k || stage.k / stage.groups % 16 != 0;
    pixels = pixels || shapes.p % 4 != 0 || shapes.q % 4 != 0;
    one = one || shapes.out_h * shapes.out_w == 1;
  }
  std::vector<std::string> tails;
  if (c) tails.emplace_back("c tail");
  if (k) tails.emplace_back("k tail");
  if (pixels) tails.emplace_back("pixel tail");
  if (one) tails.emplace_back("one pixel");
  if (tails.empty()) tails.emplace_back("whole");
  return tails;
}

std::vector<Cell> cells_of(const Check& check) {
  std::vector<Cell> cells;
  for (const std::string& tail : tails_of(check.chain))
    cells.push_back(
        {std::string(check.kernel->name()), check.tile.name, epilogue_of(check.chain), tail});
  return cells;
}

void count(const Check& check, Coverage& coverage) {
  for (const Cell& cell : cells_of(check)) ++coverage[cell];
}

std::vector<Check> fill_coverage(const std::vector<Check>& planned, Index least,
                                 const Machine& machine, std::string_view only, Random& random) {
  Coverage coverage;
  // The smallest stage of each cell: variations of a large one would all be too large.
  std::map<Cell, Check> examples;
  const auto note = [&](const Check& check) {
    const Index macs = macs_of(check.chain);
    for (const Cell& cell : cells_of(check)) {
      const auto [example, is_new] = examples.try_emplace(cell, check);
      if (!is_new && macs < macs_of(example->second.chain)) example->second = check;
    }
  };
  for (const Check& check : planned) {
    note(check);
    count(check, coverage);
  }
  std::vector<Check> more;
  const auto take = [&](const Check& check) {
    note(check);
    const auto cells = cells_of(check);
    if (std::all_of(cells.begin(), cells.end(),
                    [&](const Cell& cell) { return coverage[cell] >= least; }))
      return;
    count(check, coverage);
    more.push_back(check);
  };
  const Kernel* one = find_kernel(only, machine.device.kind);
  const auto draw = [&](const OwnedChain& chain) {
    for (const Kernel* kernel : fitting_kernels(chain, machine))
      if (!one || kernel == one)
        for (const Tile& tile : kernel->tiles(chain, machine)) take({chain, kernel, tile});
  };
  if (!one || !is_for_chains(*one))
    for (int i = 0; i < 20'000; ++i) draw(draw_stage(random, machine.device.kind));
  if (!one || is_for_chains(*one))
    for (int i = 0; i < 2'000; ++i) draw(draw_chain(random, machine.device.kind));
  const bool gpu = machine.device.kind == DeviceKind::cuda;
  // What turned up too rarely is varied. A variation may open new cells, which then need more.
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& [cell, example] : std::map<Cell, Check>(examples)) {
      for (int attempt = 0; attempt < 5000 && coverage[cell] < least; ++attempt) {
        Check check = example;
        check.chain = vary_any(example.chain, random);
        if (!problems(check.chain, gpu).empty() || macs_of(check.chain) > 10'000'000 ||
            !has_tile(*check.kernel, check.chain, machine, example.tile, check.tile))
          continue;
        const auto cells = cells_of(check);
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
