// The parts of a stage that are objects in Python, and the text of a part that Python gives. All
// text goes through the library's own reader and writer.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "convoy/stage.hpp"

namespace convoy::python {

// `what` names the argument in messages, for example "Stage: n".

/// A text unchanged, or an integer (NumPy's too) in decimal digits.
std::string word_text(const std::string& what, nanobind::handle value);
/// "3", "3x2" or "1x2x1x2" from an integer, a sequence of integers, or a text.
std::string sizes_text(const std::string& what, nanobind::handle value);
/// Whether a value is true. Texts are refused, because "no" is true.
bool flag_of(const std::string& what, nanobind::handle value);

// The rider, from its "+" on, that a value of the keywords `act`, `pool` and `keep` stands for: the
// object of Python, the rider's text, or None. Empty: no rider. Throws Error if a text has none or
// several.
std::string act_text(const std::string& what, nanobind::handle value);
std::string pool_text(const std::string& what, nanobind::handle value);
std::string keep_text(const std::string& what, nanobind::handle value);

/// The double nearest to the shortest decimal that reads back as this fp32 number: 0.1 for 0.1F.
double decimal(float value);

/// convoy.Activation, convoy.Pool and convoy.Keep
void define_stage_values(nanobind::module_& module);

}  // namespace convoy::python
