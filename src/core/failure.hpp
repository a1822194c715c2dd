// Exceptions as statuses, for functions that must not throw.
#pragma once

#include "convoy/error.hpp"

namespace convoy {

/// The exception that is being handled, as what it is; called in a catch (...).
Status current_failure() noexcept;

}  // namespace convoy
