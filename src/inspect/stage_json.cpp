#include "inspect/stage_json.hpp"

#include "core/stage_text.hpp"

namespace convoy::inspect {

nlohmann::json json_of(const Stage& stage) {
  const auto pair = [](Extent e) { return nlohmann::json{e.h, e.w}; };
  const Activation& act = stage.act;
  nlohmann::json json{{"h", stage.h},
                      {"w", stage.w},
                      {"c", stage.c},
                      {"k", stage.k},
                      {"r", stage.r},
                      {"s", stage.s},
                      {"groups", stage.groups},
                      {"bias", stage.bias},
                      {"stride", pair(stage.stride)},
                      {"dil", pair(stage.dil)},
                      {"pad", {stage.pad.top, stage.pad.left, stage.pad.bottom, stage.pad.right}},
                      {"act", act == no_act ? "" : name_of(act.kind)},
                      {"lo", act.lo()},
                      {"hi", act.hi()},
                      {"slope", act.slope()},
                      {"tau", act.tau()},
                      {"threshold", act.threshold()},
                      {"soft", stage.soft},
                      {"pool", nullptr}};
  if (const auto& pool = stage.pool)
    json["pool"] = {{"window", pair(pool->window)},
                    {"stride", pair(pool->stride)},
                    {"pad", pair(pool->pad)},
                    {"dil", pair(pool->dil)},
                    {"ceil", pool->ceil}};
  return json;
}

}  // namespace convoy::inspect
