#include "convoy/error.hpp"

#include <new>

#include "core/failure.hpp"
#include "core/printable.hpp"

namespace convoy {

// Whoever writes a message cleans what came from outside; what was forgotten ends here.
Error::Error(const std::string& message) : std::runtime_error(printable_lines(message)) {}
Error::~Error() = default;

Status::Status(StatusCode code, const std::string& message)
    : code_(code), message_(printable_lines(message)) {}

std::string_view to_text(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_operand:
      return "invalid_operand";
    case StatusCode::no_weights:
      return "no_weights";
    case StatusCode::no_workspace:
      return "no_workspace";
    case StatusCode::busy:
      return "busy";
    case StatusCode::moved_from:
      return "moved_from";
    case StatusCode::out_of_memory:
      return "out_of_memory";
    case StatusCode::device_error:
      return "device_error";
    case StatusCode::internal_error:
      return "internal_error";
  }
  return "?";
}

namespace {

Status caught() {
  try {
    throw;
  } catch (const Error& error) {  // in a run only what talks to a GPU throws it
    return {StatusCode::device_error, error.what()};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "out of memory"};
  } catch (const std::length_error&) {
    return {StatusCode::out_of_memory, "out of memory"};
  } catch (const std::exception& error) {
    return {StatusCode::internal_error, error.what()};
  } catch (...) {
    return {StatusCode::internal_error, "unknown error"};
  }
}

}  // namespace

Status current_failure() noexcept {
  try {
    return caught();
  } catch (...) {
    // The message did not fit in memory. This one fits into the string itself.
    return {StatusCode::out_of_memory, "out of memory"};
  }
}

}  // namespace convoy
