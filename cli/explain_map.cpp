// convoy explain --map, --smem and --pipe: a kernel from inside.
#include "explain_map.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "convoy/error.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "inspect/kernel_map/render.hpp"
#include "options.hpp"

namespace convoy::cli {
namespace {

/// "3,5,7,100" as so many numbers from 0 on.
std::vector<Index> numbers_of(const char* option, const std::string& text, std::size_t least,
                              std::size_t most, const char* form) {
  std::vector<Index> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool right = !text.empty();
  while (right) {
    Index value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    right = error == std::errc() && value >= 0;
    numbers.push_back(value);
    at = stop;
    if (at == end) break;
    right = right && *at++ == ',';
  }
  if (!right || numbers.size() < least || numbers.size() > most)
    throw Error(fmt::format("explain: {}: found \"{}\", expected {}, in whole numbers of 0 or more",
                            option, printable(text, 80), form));
  return numbers;
}

inspect::MapPoint point_of(const MapArguments& arguments) {
  inspect::MapPoint point;
  const int asked = (arguments.at.empty() ? 0 : 1) + (arguments.gemm.empty() ? 0 : 1) +
                    (arguments.thread < 0 ? 0 : 1);
  if (asked > 1)
    throw Error(
        "explain: found more than one of --at, --gemm and --thread, expected one of them. Leave "
        "the "
        "others out.");
  if (!arguments.at.empty()) {
    const auto at = numbers_of("--at", arguments.at, 4, 4, "n,p,q,k");
    point.at = inspect::OutputIndex{at[0], at[1], at[2], at[3]};
  }
  if (!arguments.gemm.empty())
    point.gemm = numbers_of("--gemm", arguments.gemm, 2, 3, "m,k or m,k,filter");
  if (arguments.thread >= 0) {
    point.thread = arguments.thread;
    if (!arguments.block.empty()) {
      const auto block =
          numbers_of("--block", arguments.block, 1, 3, "X,Y (a tile), X,Y,T or B (a CTA)");
      point.block_x = block[0];
      point.block_y = block.size() > 1 ? block[1] : -1;
      point.block_t = block.size() > 2 ? block[2] : 0;
    }
    point.step = std::max<Index>(arguments.step, 0);
  } else if (!arguments.block.empty() || arguments.step >= 0) {
    throw Error(
        "explain: found --block or --step without --thread, expected --thread T with them, because "
        "they place a thread. Add it.");
  }
  return point;
}

}  // namespace

void MapArguments::add_to(Command& command) {
  command.add_flag("--map", map,
                   "Show which CTA, thread and register computes each element: sizes, grid, tiles");
  command
      .add_option(
          "--at", at,
          "As --map, and follow the output n,p,q,k (image, row, column, filter; before the pool)")
      ->type_name("N,P,Q,K")
      ->check(not_empty());
  command
      .add_option(
          "--gemm", gemm,
          "As --map, and follow the product in row m and column k of the implicit GEMM, for one "
          "filter if m,k,filter is given")
      ->type_name("M,K")
      ->check(not_empty());
  command.add_option("--thread", thread, "As --map, and follow a thread of a CTA through one step")
      ->type_name("T")
      ->check(between(Index{0}, 1023));
  command
      .add_option("--block", block,
                  "With --thread: the CTA's tile X,Y of the grid (X,Y,T with a time step T for a "
                  "neuron), or its number B in starting order; by default the first CTA")
      ->type_name("X,Y")
      ->check(not_empty());
  command.add_option("--step", step, "With --thread: the step; by default 0")
      ->type_name("I")
      ->check(at_least(0));
  command.add_flag("--smem", smem, "Show the layout of shared memory and its bank conflicts");
  command.add_flag("--pipe", pipe,
                   "Show the pipeline: loads, multiplications and waits in each step");
}

bool MapArguments::wanted() const {
  return map || smem || pipe || !at.empty() || !gemm.empty() || thread >= 0 || !block.empty() ||
         step >= 0;
}

void run_explain_map(const MapArguments& arguments, const MapOf& of) {
  const inspect::MapPoint point = point_of(arguments);
  inspect::MapRequest request{parse_stage(of.stage), of.device, of.kernel, of.tile, of.threads};
  request.stage.strict = request.stage.strict || of.strict;
  const auto map = inspect::make_kernel_map(request);
  if (of.json) {
    inspect::Json json = inspect::map_json(*map, point);
    if (arguments.smem) json["shared_memory"] = inspect::to_json(map->shared_memory());
    if (arguments.pipe) json["pipeline"] = inspect::to_json(map->pipeline());
    fmt::print("{}\n", json_text(json, 1));
    return;
  }
  std::string text = inspect::map_text(*map, point);
  if (arguments.smem) text += inspect::to_text(map->shared_memory());
  if (arguments.pipe) text += inspect::to_text(map->pipeline());
  fmt::print("{}", text);
}

}  // namespace convoy::cli
