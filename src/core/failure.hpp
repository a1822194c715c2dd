// Exceptions as statuses, for functions that must not throw, and as Errors, for all others.
#pragma once

#include "convoy/error.hpp"

namespace convoy {

/// Thrown when the host has no memory: to callers an Error as any, from a run out_of_memory.
class NoMemory : public Error {
 public:
  using Error::Error;
};

/// Throws the exception that is being handled again, and lack of memory as NoMemory, for which it
/// needs none; called in a catch (...). Every function of the interface that may throw has one
/// around it, so that no std::bad_alloc leaves the library.
[[noreturn]] void rethrow_as_error();

/// Turns the exception that is being handled into a Status; called in a catch (...). of_error: the
/// code of an Error that is not about memory.
Status current_failure(StatusCode of_error = StatusCode::device_error) noexcept;

}  // namespace convoy
