// Every field of a stage at values that are easily forgotten, and which pairs of them were drawn
// together: what breaks a kernel is rarely one field alone.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "convoy/tensor.hpp"
#include "verify/random.hpp"

namespace convoy::verify {

/// A field away from its usual value: "pool pad height", "dilation over the image".
struct Field {
  std::string_view name;
  bool (*has)(const Stage& stage);
  /// Gives it to the stage, which may be illegal afterwards.
  void (*give)(Random& random, Stage& stage);
};
std::span<const Field> fields();

/// Gives some of the fields to the stage: one, a few or many.
void give_fields(Random& random, Stage& stage);

/// How often two fields were met in one stage, by their places in fields(), the smaller first.
using FieldPairs = std::map<std::pair<int, int>, Index>;
void count_fields(const Stage& stage, FieldPairs& pairs);

/// Stages besides the planned ones, so that each pair of fields that a stage can have together will
/// have been met at least `least` times. `pairs`: of the planned ones and those.
std::vector<Stage> fill_fields(const std::vector<Stage>& planned, Index least, DeviceKind device,
                               Random& random, FieldPairs& pairs);

}  // namespace convoy::verify
