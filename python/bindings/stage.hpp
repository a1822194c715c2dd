// Stages as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::python {

/// A convoy.Stage, or its text. Raises convoy.Error where the text is no legal stage.
Stage stage_of(nanobind::handle stage);
/// The text of a convoy.Stage, or a text as it is. Raises convoy.Error for anything else.
std::string text_of(nanobind::handle stage);
/// The stage as a line of network.txt has it: without type, n, h, w, c, t and hold, which follow
/// from other lines. `linear`: also without r and s, as after "flatten".
std::string layer_text(const Stage& stage, bool linear);

/// A tuple of sizes.
nanobind::tuple tuple_of(const std::vector<Index>& sizes);

/// convoy.Stage
void define_stage(nanobind::module_& module);

}  // namespace convoy::python
