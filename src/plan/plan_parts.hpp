// What is inside a Plan, for code of the library that works on many.
#pragma once

#include "convoy/plan.hpp"

namespace convoy {

class Bound;

/// The plan's Bound, on which the weights may be repacked. Throws Error as Plan::repack does.
Bound& bound_for_repack(Plan& plan, const ConstTensorView& weights);

}  // namespace convoy
