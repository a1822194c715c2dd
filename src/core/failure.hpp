// Errors by their code, and exceptions as statuses, for functions that must not throw.
#pragma once

#include "convoy/error.hpp"

namespace convoy {

/// An Error of one code: the place that throws names the kind of the failure by the type.
template <StatusCode code_of_all>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(message, code_of_all) {}
};
using InvalidOperand = ErrorOf<StatusCode::invalid_operand>;
using Unsupported = ErrorOf<StatusCode::unsupported>;
using NoDevice = ErrorOf<StatusCode::no_device>;
using FileNotFound = ErrorOf<StatusCode::file_not_found>;
using FileError = ErrorOf<StatusCode::file_error>;
using InvalidFile = ErrorOf<StatusCode::invalid_file>;
using NoMemory = ErrorOf<StatusCode::out_of_memory>;
using DeviceError = ErrorOf<StatusCode::device_error>;
using InternalError = ErrorOf<StatusCode::internal_error>;

/// Throws the exception that is being handled again, and lack of memory as NoMemory, for which it
/// needs none; called in a catch (...). Every function of the interface that may throw has one
/// around it, so that no std::bad_alloc leaves the library.
[[noreturn]] void rethrow_as_error();

/// Turns the exception that is being handled into a Status; called in a catch (...).
Status current_failure() noexcept;

}  // namespace convoy
