#include "convoy/version.hpp"

#include "convoy/plan.hpp"

namespace convoy {

const char* version() {
  return CONVOY_VERSION;
}

}  // namespace convoy
