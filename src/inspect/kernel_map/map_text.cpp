// `explain --map` as text.
#include <fmt/core.h>

#include <algorithm>

#include "convoy/error.hpp"
#include "inspect/kernel_map/render.hpp"

namespace convoy::inspect {
namespace {

void line(std::string& text, std::string_view label, const std::string& value) {
  text += fmt::format("  {:<14} {}\n", label, value);
}

std::string place_text(const InputElement& x) {
  return x.inside ? fmt::format("inside, {} bytes at byte {} of x", x.bytes, x.byte)
                  : std::string("padding: reads 0");
}

std::string tile_text(const TilePlace& tile) {
  return fmt::format("({}, {}), {}{} CTA {}", tile.x, tile.y,
                     tile.t > 0 ? fmt::format("time step {}, ", tile.t) : std::string(),
                     tile.turn > 0 ? fmt::format("tile {} of", tile.turn) : std::string("of"),
                     tile.cta);
}

/// Columns as wide as their widest cell.
std::string table(const std::vector<std::string>& heading,
                  const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width;
  width.reserve(heading.size());
  for (const std::string& cell : heading) width.push_back(cell.size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string one = " ";
    for (std::size_t i = 0; i < row.size(); ++i) one += fmt::format(" {:<{}}", row[i], width[i]);
    text += one.substr(0, one.find_last_not_of(' ') + 1) + "\n";
  };
  add(heading);
  for (const auto& row : rows) add(row);
  return text;
}

std::string winograd_text(const WinogradPlace& at, const TapIndex* tap) {
  std::string text;
  line(text, "tile",
       fmt::format("{}, its first output (p {}, q {}); in it row {}, column {}", at.tile, at.row,
                   at.column, at.i, at.j));
  for (const MapFact& pass : at.passes)
    line(text, pass.name, pass.value + (pass.note.empty() ? "" : ": " + pass.note));
  if (at.passes.empty()) {
    line(text, "block",
         fmt::format("{}, group {}, tile {} of the group", at.block, at.group, at.in_group));
    line(text, "panel", fmt::format("{}, filter {} of the panel", at.panel, at.in_panel));
  }
  line(text, "products",
       fmt::format("{}: output = sum of factor x M{}", at.products.size(),
                   tap ? ", V = sum of factor x input, U = sum of factor x weight" : ""));
  std::vector<std::string> heading{"xi", "(i,j)", "U", "V at float", "M at float", "of the output"};
  if (tap) heading.insert(heading.end(), {"of the input", "of the weight"});
  std::vector<std::vector<std::string>> rows;
  for (const WinogradProduct& product : at.products) {
    rows.push_back({fmt::format("{}", product.xi), fmt::format("({},{})", product.i, product.j),
                    fmt::format("{}", product.filter), fmt::format("{}", product.v),
                    fmt::format("{}", product.m), fmt::format("{:.6g}", product.of_output)});
    if (!tap) continue;
    rows.back().push_back(fmt::format("{:.6g}", product.of_input));
    rows.back().push_back(fmt::format("{:.6g}", product.of_weight));
  }
  return text + table(heading, rows);
}

std::string accumulator_text(const KernelMap& map, const Accumulator& a) {
  std::string text;
  line(text, "tile", tile_text(a.tile));
  line(text, "in the tile", fmt::format("row {}, filter {}", a.row, a.column));
  line(text, "held by",
       fmt::format("warp {}, lane {} (thread {}), accumulator {}: {}", a.warp, a.lane, a.thread,
                   a.number, a.name));
  line(text, "leaves", a.stored);
  const auto back = map.output_of(a.tile, a.thread, a.number);
  line(text, "back",
       back ? fmt::format("that register holds (n {}, p {}, q {}, k {})", back->n, back->p, back->q,
                          back->k)
            : "that register holds no output");
  return text;
}

std::string at_text(const KernelMap& map, const OutputIndex& at) {
  const Stage& stage = map.stage();
  expect_output(stage, at);
  const Index m = gemm_row(stage, at);
  std::string text = fmt::format("\nOutput (n {}, p {}, q {}, k {})\n", at.n, at.p, at.q, at.k);
  const auto y = y_byte(stage, at, map.output_type());
  line(text, "GEMM", fmt::format("row m = {}, column {}", m, at.k));
  line(text, "y",
       y ? fmt::format("byte {}{}", *y, stage.pool ? ", the maximum of its window" : "")
         : "in no window of the pool");
  if (const auto winograd = map.winograd(at, nullptr))
    return text + winograd_text(*winograd, nullptr);
  text += accumulator_text(map, map.accumulator(at));
  text += "  taps, of its first channel:\n";
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> heading{"(r,s)", "(h,w)", "x", "k", "step"};
  const bool slots = map.operand(at, {}).slot >= 0;
  if (slots)
    heading.insert(heading.end(), {"slot", "byte of the slot"});
  else
    heading.insert(heading.end(), {"thread", "register"});
  constexpr Index most = 64;
  for (Index tap = 0; tap < std::min(stage.r * stage.s, most); ++tap) {
    const TapIndex of{tap / stage.s, tap % stage.s, 0};
    const InputElement x = input_of(stage, at, of);
    const OperandPlace place = map.operand(at, of);
    rows.push_back({fmt::format("({},{})", of.r, of.s), fmt::format("({},{})", x.h, x.w),
                    x.inside ? fmt::format("byte {}", x.byte) : "padding",
                    fmt::format("{}", gemm_column(stage, of)), fmt::format("{}", place.step),
                    fmt::format("{}", slots ? place.slot : place.thread),
                    slots ? fmt::format("{}", place.in_slot) : place.name});
  }
  text += table(heading, rows);
  if (stage.r * stage.s > most) text += fmt::format("  and {} more\n", stage.r * stage.s - most);
  return text;
}

std::string gemm_text(const KernelMap& map, const std::vector<Index>& asked) {
  const Stage& stage = map.stage();
  const Product p = product_at(stage, asked[0], asked[1], asked.size() > 2 ? asked[2] : 0);
  std::string text = fmt::format("\nProduct (m {}, k {}) of filter {}\n", p.m, p.k, p.output.k);
  line(text, "output", fmt::format("(n {}, p {}, q {})", p.output.n, p.output.p, p.output.q));
  line(text, "tap",
       fmt::format("(r {}, s {}), channel {} of its group", p.tap.r, p.tap.s, p.tap.c));
  line(text, "input",
       fmt::format("(h {}, w {}), channel {}: {}", p.input.h, p.input.w, p.input.c,
                   place_text(p.input)));
  line(text, "weight", fmt::format("{} bytes at byte {} of w", p.input.bytes, p.weight_byte));
  const auto back = output_that_reads(stage, p.input, p.tap, p.output.k);
  line(text, "back",
       back
           ? fmt::format("(h {}, w {}) with tap ({},{}) belongs to output (p {}, q {}): m {}, k {}",
                         p.input.h, p.input.w, p.tap.r, p.tap.s, back->p, back->q,
                         gemm_row(stage, *back), gemm_column(stage, p.tap))
           : "no output reads it");
  if (const auto winograd = map.winograd(p.output, &p.tap))
    return text + winograd_text(*winograd, &p.tap);
  text += accumulator_text(map, map.accumulator(p.output));
  const OperandPlace place = map.operand(p.output, p.tap);
  if (place.slot < 0) {
    line(text, "multiplied in", fmt::format("step {}", place.step));
    line(text, "stored in", fmt::format("register {} of thread {}", place.name, place.thread));
  } else {
    line(text, "multiplied in", fmt::format("step {}, slot {}", place.step, place.slot));
    line(text, "stored at",
         fmt::format("byte {} of the slot, {} of the CTA's shared memory", place.in_slot,
                     place.in_shared));
  }
  line(text, "brought by", place.brought);
  line(text, "read by", place.read);
  return text;
}

std::string thread_text(const KernelMap& map, const MapPoint& point, int thread) {
  const TilePlace tile = map.in_step(map.tile_at(point.block_x, point.block_y), point.block_t);
  const ThreadStep what = map.thread_step(tile, thread, point.step);
  std::string text =
      fmt::format("\nThread {} of tile {}, step {}\n", thread, tile_text(tile), point.step);
  text += fmt::format("  {}\n", what.role);
  text += table(what.heading, what.rows);
  for (const std::string& note : what.notes) text += fmt::format("  {}\n", note);
  return text;
}

}  // namespace

std::string map_text(const KernelMap& map, const MapPoint& point) {
  const Shapes shapes = shapes_of(map.stage());
  std::string text = fmt::format("{}\nkernel {}, tile {}, for {}\n", to_text(map.stage()),
                                 map.kernel(), map.tile(), map.machine());
  line(text, "GEMM",
       fmt::format("{} x {} x {}: N*P*Q x K, of R*S*C/groups products", shapes.gemm_m,
                   shapes.gemm_n, shapes.gemm_k));
  for (const MapFact& fact : map.facts())
    line(text, fact.name, fact.value + (fact.note.empty() ? "" : ": " + fact.note));
  line(text, "order", map.order());
  std::string first;
  for (const TilePlace& tile : map.first_tiles(10))
    first += fmt::format("{}({},{}{})", first.empty() ? "" : " ", tile.x, tile.y,
                         tile.t > 0 ? fmt::format(",{}", tile.t) : std::string());
  line(text, "first tiles", first);
  if (point.at) return text + at_text(map, *point.at);
  if (point.gemm) return text + gemm_text(map, *point.gemm);
  if (point.thread) return text + thread_text(map, point, *point.thread);
  return text;
}

std::string to_text(const SharedMemoryMap& map) {
  std::string text =
      fmt::format("\nShared memory of {} {}: {} bytes\n", map.kernel, map.tile, map.bytes);
  std::vector<std::vector<std::string>> rows;
  rows.reserve(map.regions.size());
  for (const SharedRegion& region : map.regions)
    rows.push_back({fmt::format("{}", region.begin), fmt::format("{}", region.bytes), region.name,
                    region.what});
  text += table({"from", "bytes", "what", ""}, rows);
  text += fmt::format("  {}\n  {}\n", map.layout, map.protects);
  text += fmt::format(
      "\nBanks: 32 of 4 bytes; a digit is the lane of its phase, # two words of a bank\n");
  for (const SharedAccess& access : map.accesses) {
    text += fmt::format("  {}, {} ({})\n", access.name, access.instruction, access.who);
    const auto picture = [&](const char* how, const BankUse& use) {
      for (std::size_t i = 0; i < use.phases.size(); ++i)
        if (i == 0 || use.phases[i].wavefronts > use.phases[0].wavefronts) {
          text += fmt::format("    {:<16} {}  {} wavefronts for {}, {} conflicts\n", how,
                              use.phases[i].picture, use.wavefronts, use.least, use.conflicts());
          return;
        }
    };
    picture("as stored", access.use);
    picture("plain", access.plain);
    if (access.instructions > 0)
      text += fmt::format("    of a tile: {}{:.0f} instructions, {:.0f} conflicts; plain {:.0f}\n",
                          access.at_most ? "at most " : "", access.instructions, access.conflicts,
                          access.plain_conflicts);
    if (!access.counted) text += "    not in ncu's counts of shared loads and stores\n";
  }
  text += fmt::format("\nAccumulators of thread 0\n  {}\n", map.accumulator_order);
  for (const AccumulatorRow& row : map.accumulators) {
    std::string registers, columns;
    const std::size_t shown = std::min<std::size_t>(row.registers.size(), 12);
    for (std::size_t i = 0; i < shown; ++i) {
      registers += fmt::format("{}R{}", i ? "," : "", row.registers[i]);
      columns += fmt::format("{}{}", i ? "," : "", row.columns[i]);
    }
    const char* more = shown < row.registers.size() ? ",..." : "";
    text += fmt::format("  row {:>3}: [{}{}] hold {} [{}{}]\n", row.row, registers, more,
                        map.columns_are, columns, more);
  }
  text += "\nHow results leave\n";
  for (const std::string& one : map.epilogue) text += fmt::format("  {}\n", one);
  return text;
}

std::string to_text(const Pipeline& pipe) {
  std::string text = fmt::format("\nPipeline of {} {}: {} steps {}\n", pipe.kernel, pipe.tile,
                                 pipe.steps, pipe.per);
  for (const PipelineRing& ring : pipe.rings)
    text += fmt::format("  ring of {}: {} slots of {} bytes, {} loads {}\n", ring.name, ring.slots,
                        ring.slot_bytes, ring.loads, pipe.per);
  for (const PipelineActor& actor : pipe.actors)
    text += fmt::format("  {} ({} {}): {}\n    waits for {}\n", actor.name, actor.threads,
                        actor.threads == 1 ? "thread" : "threads", actor.does, actor.waits);
  for (std::size_t i = 0; i < pipe.lines.size(); ++i) {
    const PipelineLine& one = pipe.lines[i];
    if (pipe.left_out > 0 && i == pipe.left_out_at)
      text += fmt::format("  ...        {} steps alike\n", pipe.left_out);
    std::string math = "prologue";
    if (one.step >= 0) {
      math = fmt::format("step {}", one.step);
      for (std::size_t ring = 0; ring < one.math_slots.size(); ++ring)
        math += pipe.rings.size() == 1 ? fmt::format(": math on slot {}", one.math_slots[ring])
                                       : fmt::format("{} {}[{}]", ring ? "," : ": math on",
                                                     pipe.rings[ring].name, one.math_slots[ring]);
    }
    std::string loads;
    for (const PipelineLoad& load : one.loads)
      loads += fmt::format("{}{}{} -> slot {} ({})", loads.empty() ? "" : "; ",
                           pipe.rings.size() == 1
                               ? std::string("load ")
                               : pipe.rings[static_cast<std::size_t>(load.ring)].name + " ",
                           load.load, load.slot, load.what);
    text += fmt::format("  {:<36} {}\n", math, loads.empty() ? "no load" : loads);
    if (!one.waits.empty())
      text += fmt::format("  {:<36} {}: {}\n", "",
                          one.step < 0             ? "then"
                          : pipe.rings.size() == 1 ? "waits"
                                                   : "needs",
                          one.waits);
  }
  for (const std::string& note : pipe.notes) text += fmt::format("  {}\n", note);
  return text;
}

}  // namespace convoy::inspect
