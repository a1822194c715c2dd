#include "convoy/error.hpp"

#include <new>
#include <stdexcept>

#include "core/failure.hpp"
#include "core/printable.hpp"

namespace convoy {

// Whoever writes a message cleans what came from outside; what was forgotten ends here.
Error::Error(const std::string& message, StatusCode code)
    : std::runtime_error(printable_lines(message)), code_(code) {}
Error::~Error() = default;

Status::Status(StatusCode code, const std::string& message)
    : code_(code), message_(printable_lines(message)) {}

std::string_view to_text(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid_argument";
    case StatusCode::invalid_operand:
      return "invalid_operand";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::no_device:
      return "no_device";
    case StatusCode::file_not_found:
      return "file_not_found";
    case StatusCode::file_error:
      return "file_error";
    case StatusCode::invalid_file:
      return "invalid_file";
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

// Made when the program starts: a copy of it takes no memory, and neither does throwing one.
const NoMemory* make_ready() noexcept {
  try {
    return new NoMemory(
        "no memory: the host does not have enough for this request. Free some, or request less (a "
        "smaller n, fewer filters or layers).");
  } catch (...) {
    return nullptr;
  }
}
const NoMemory* const ready = make_ready();

[[noreturn]] void throw_no_memory() {
  if (ready) throw NoMemory(*ready);
  throw NoMemory("no memory");
}

Status caught() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
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

void rethrow_as_error() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw_no_memory();
  } catch (const std::length_error&) {  // of a vector that no memory could hold
    throw_no_memory();
  }
}

Status current_failure() noexcept {
  try {
    return caught();
  } catch (...) {
    // The message did not fit in memory. This one fits into the string itself.
    return {StatusCode::out_of_memory, "out of memory"};
  }
}

}  // namespace convoy
