// Plan options of most tests.
#pragma once

#include "convoy/plan.hpp"

namespace convoy {

/// One thread, and nothing that was tuned.
inline PlanOptions plain() {
  PlanOptions options;
  options.threads = 1;
  options.use_tuning = false;
  return options;
}

}  // namespace convoy
