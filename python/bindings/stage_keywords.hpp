// The keywords of convoy.Stage: the words of a stage's text, one for each field.
#pragma once

#include <nanobind/nanobind.h>

#include "convoy/stage.hpp"

namespace convoy::python {

/// The stage of these keywords. Throws Error if one is unknown, has a wrong type, or the stage is
/// illegal.
Stage stage_of_keywords(const nanobind::dict& keywords);
/// The keywords that a text or a convoy.Stage gives. Axes may be missing, so the keywords need not
/// make a legal stage. Throws Error if the text is wrong.
nanobind::dict keywords_of(nanobind::handle stage);
/// The stage with other values for these keywords.
Stage replaced(const Stage& stage, const nanobind::dict& changes);

}  // namespace convoy::python
