// Stages as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include "convoy/stage.hpp"

namespace convoy::python {

/// A convoy.Stage, or its text. Raises convoy.Error where the text is no legal stage.
Stage stage_of(nanobind::handle stage);

/// A tuple of sizes.
nanobind::tuple tuple_of(const std::vector<Index>& sizes);

/// convoy.Stage
void define_stage(nanobind::module_& module);

}  // namespace convoy::python
