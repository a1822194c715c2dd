// `explain --map` as JSON.
#include <algorithm>

#include "inspect/kernel_map/render.hpp"

namespace convoy::inspect {
namespace {

Json json_of(const TilePlace& tile) {
  return {{"x", tile.x}, {"y", tile.y}, {"cta", tile.cta}, {"turn", tile.turn}, {"t", tile.t}};
}
Json json_of(const OutputIndex& at) {
  return {{"n", at.n}, {"p", at.p}, {"q", at.q}, {"k", at.k}};
}
Json json_of(const TapIndex& tap) {
  return {{"r", tap.r}, {"s", tap.s}, {"c", tap.c}};
}
Json json_of(const InputElement& x) {
  Json json{{"n", x.n}, {"h", x.h}, {"w", x.w}, {"c", x.c}, {"inside", x.inside}};
  json["byte"] = x.inside ? Json(x.byte) : Json(nullptr);
  json["bytes"] = x.bytes;
  return json;
}
Json json_of(const KernelMap& map, const Accumulator& a) {
  Json json{{"tile", json_of(a.tile)}, {"row", a.row},   {"column", a.column},
            {"thread", a.thread},      {"warp", a.warp}, {"lane", a.lane},
            {"number", a.number},      {"name", a.name}, {"leaves", a.stored}};
  const auto back = map.output_of(a.tile, a.thread, a.number);
  json["back"] = back ? json_of(*back) : Json(nullptr);
  return json;
}
Json json_of(const OperandPlace& place) {
  if (place.slot < 0)
    return {{"step", place.step}, {"thread", place.thread},   {"number", place.number},
            {"name", place.name}, {"brought", place.brought}, {"read", place.read}};
  return {{"step", place.step},           {"slot", place.slot},       {"in_slot", place.in_slot},
          {"in_shared", place.in_shared}, {"brought", place.brought}, {"read", place.read}};
}
Json json_of(const MapFact& fact) {
  return {{"name", fact.name}, {"value", fact.value}, {"note", fact.note}};
}
Json json_of(const WinogradPlace& at) {
  Json products = Json::array(), passes = Json::array();
  for (const MapFact& pass : at.passes) passes.push_back(json_of(pass));
  for (const WinogradProduct& one : at.products)
    products.push_back({{"xi", one.xi},
                        {"i", one.i},
                        {"j", one.j},
                        {"filter", one.filter},
                        {"v", one.v},
                        {"m", one.m},
                        {"of_output", one.of_output},
                        {"of_input", one.of_input},
                        {"of_weight", one.of_weight}});
  return {{"tile", at.tile},
          {"row", at.row},
          {"column", at.column},
          {"i", at.i},
          {"j", at.j},
          {"block", at.block},
          {"group", at.group},
          {"in_group", at.in_group},
          {"panel", at.panel},
          {"in_panel", at.in_panel},
          {"passes", std::move(passes)},
          {"products", std::move(products)}};
}

Json at_json(const KernelMap& map, const OutputIndex& at) {
  const Stage& stage = map.stage();
  expect_output(stage, at);
  Json json{{"output", json_of(at)}, {"m", gemm_row(stage, at)}};
  const auto y = y_byte(stage, at, map.output_type());
  json["y_byte"] = y ? Json(*y) : Json(nullptr);
  if (const auto winograd = map.winograd(at, nullptr)) {
    json["winograd"] = json_of(*winograd);
    return json;
  }
  json["accumulator"] = json_of(map, map.accumulator(at));
  Json taps = Json::array();
  constexpr Index most = 1024;
  for (Index tap = 0; tap < std::min(stage.r * stage.s, most); ++tap) {
    const TapIndex of{tap / stage.s, tap % stage.s, 0};
    taps.push_back({{"tap", json_of(of)},
                    {"k", gemm_column(stage, of)},
                    {"input", json_of(input_of(stage, at, of))},
                    {"operand", json_of(map.operand(at, of))}});
  }
  json["taps"] = std::move(taps);
  json["taps_left_out"] = std::max<Index>(0, stage.r * stage.s - most);
  return json;
}

Json gemm_json(const KernelMap& map, const std::vector<Index>& asked) {
  const Stage& stage = map.stage();
  const Product p = product_at(stage, asked[0], asked[1], asked.size() > 2 ? asked[2] : 0);
  Json json{{"m", p.m},
            {"k", p.k},
            {"output", json_of(p.output)},
            {"tap", json_of(p.tap)},
            {"input", json_of(p.input)},
            {"weight_byte", p.weight_byte}};
  const auto back = output_that_reads(stage, p.input, p.tap, p.output.k);
  json["back"] =
      back ? Json{{"m", gemm_row(stage, *back)}, {"k", gemm_column(stage, p.tap)}} : Json(nullptr);
  if (const auto winograd = map.winograd(p.output, &p.tap)) {
    json["winograd"] = json_of(*winograd);
    return json;
  }
  json["accumulator"] = json_of(map, map.accumulator(p.output));
  json["operand"] = json_of(map.operand(p.output, p.tap));
  return json;
}

Json thread_json(const KernelMap& map, const MapPoint& point, int thread) {
  const TilePlace tile = map.in_step(map.tile_at(point.block_x, point.block_y), point.block_t);
  const ThreadStep what = map.thread_step(tile, thread, point.step);
  return {{"thread", thread},   {"tile", json_of(tile)},   {"step", point.step},
          {"role", what.role},  {"heading", what.heading}, {"rows", what.rows},
          {"notes", what.notes}};
}

Json json_of(const BankUse& use) {
  Json phases = Json::array();
  for (const BankPhase& phase : use.phases)
    phases.push_back({{"banks", phase.picture}, {"wavefronts", phase.wavefronts}});
  return {{"wavefronts", use.wavefronts},
          {"least", use.least},
          {"conflicts", use.conflicts()},
          {"phases", std::move(phases)}};
}

const char* name_of(PipelinePhase phase) {
  switch (phase) {
    case PipelinePhase::prologue:
      return "prologue";
    case PipelinePhase::loop:
      return "loop";
    case PipelinePhase::drain:
      break;
  }
  return "drain";
}

}  // namespace

Json map_json(const KernelMap& map, const MapPoint& point) {
  const Shapes shapes = shapes_of(map.stage());
  Json facts = Json::array(), tiles = Json::array();
  for (const MapFact& fact : map.facts()) facts.push_back(json_of(fact));
  for (const TilePlace& tile : map.first_tiles(10)) tiles.push_back(json_of(tile));
  Json json{{"stage", to_text(map.stage())},
            {"kernel", map.kernel()},
            {"tile", map.tile()},
            {"machine", map.machine()},
            {"gemm", {{"m", shapes.gemm_m}, {"n", shapes.gemm_n}, {"k", shapes.gemm_k}}},
            {"facts", std::move(facts)},
            {"order", map.order()},
            {"first_tiles", std::move(tiles)}};
  if (point.at)
    json["at"] = at_json(map, *point.at);
  else if (point.gemm)
    json["product"] = gemm_json(map, *point.gemm);
  else if (point.thread)
    json["thread"] = thread_json(map, point, *point.thread);
  return json;
}

Json to_json(const SharedMemoryMap& map) {
  Json regions = Json::array(), accesses = Json::array(), accumulators = Json::array();
  for (const SharedRegion& region : map.regions)
    regions.push_back({{"name", region.name},
                       {"begin", region.begin},
                       {"bytes", region.bytes},
                       {"what", region.what}});
  for (const SharedAccess& access : map.accesses)
    accesses.push_back({{"name", access.name},
                        {"instruction", access.instruction},
                        {"who", access.who},
                        {"store", access.store},
                        {"width", access.width},
                        {"address", access.address},
                        {"plain_address", access.plain_address},
                        {"use", json_of(access.use)},
                        {"plain", json_of(access.plain)},
                        {"counted", access.counted},
                        {"at_most", access.at_most},
                        {"instructions", access.instructions},
                        {"wavefronts", access.wavefronts},
                        {"conflicts", access.conflicts},
                        {"plain_conflicts", access.plain_conflicts}});
  for (const AccumulatorRow& row : map.accumulators)
    accumulators.push_back({{"warp", row.warp},
                            {"lane", row.lane},
                            {"row", row.row},
                            {"registers", row.registers},
                            {"columns", row.columns}});
  return {{"kernel", map.kernel},
          {"tile", map.tile},
          {"bytes", map.bytes},
          {"tiles", map.tiles},
          {"layout", map.layout},
          {"protects", map.protects},
          {"regions", std::move(regions)},
          {"accesses", std::move(accesses)},
          {"accumulators", std::move(accumulators)},
          {"accumulator_order", map.accumulator_order},
          {"epilogue", map.epilogue}};
}

Json to_json(const Pipeline& pipe) {
  Json rings = Json::array(), actors = Json::array(), lines = Json::array();
  for (const PipelineRing& ring : pipe.rings)
    rings.push_back({{"name", ring.name},
                     {"slots", ring.slots},
                     {"slot_bytes", ring.slot_bytes},
                     {"loads", ring.loads}});
  for (const PipelineActor& actor : pipe.actors)
    actors.push_back({{"name", actor.name},
                      {"threads", actor.threads},
                      {"does", actor.does},
                      {"waits", actor.waits}});
  for (const PipelineLine& one : pipe.lines) {
    Json loads = Json::array();
    for (const PipelineLoad& load : one.loads)
      loads.push_back(
          {{"ring", load.ring}, {"load", load.load}, {"slot", load.slot}, {"what", load.what}});
    Json row{{"phase", name_of(one.phase)}};
    row["step"] = one.step >= 0 ? Json(one.step) : Json(nullptr);
    row["math_slots"] = one.math_slots;
    row["loads"] = std::move(loads);
    row["waits"] = one.waits;
    lines.push_back(std::move(row));
  }
  return {{"kernel", pipe.kernel},
          {"tile", pipe.tile},
          {"per", pipe.per},
          {"steps", pipe.steps},
          {"tiles", pipe.tiles},
          {"prologue", pipe.prologue},
          {"rings", std::move(rings)},
          {"actors", std::move(actors)},
          {"lines", std::move(lines)},
          {"left_out", pipe.left_out},
          {"left_out_at", pipe.left_out_at},
          {"notes", pipe.notes}};
}

}  // namespace convoy::inspect
