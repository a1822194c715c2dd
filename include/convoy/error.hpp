// Errors: what was asked, what was found, and what to do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "convoy/export.hpp"

namespace convoy {

/// Thrown when a stage is illegal, a plan can't be made or a file can't be read.
/// `what()` says in a line or two what was found, what was expected and what to do.
/// Nothing was allocated, written or changed when it is thrown, unless the function says otherwise.
class CONVOY_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
  ~Error() override;
};

/// What kind of thing went wrong in a run, for programs; the message says what exactly.
enum class StatusCode : std::uint8_t {
  ok,
  invalid_operand,  // an operand's shape, type, device, address or strides; operands that overlap
  no_weights,       // the plan has none yet
  no_workspace,     // none is given, and the plan owns none
  busy,             // another run is under way, of an object that runs one at a time
  moved_from,       // the object was moved from
  out_of_memory,    // of the host
  device_error,     // the GPU or its driver
  internal_error,   // anything else: a fault of the library
};
/// "invalid_operand" and so on; "?" for a number that is no code.
CONVOY_API std::string_view to_text(StatusCode code);

/// What `run` returns: it never throws, so that it can be called from any runtime.
///
///     const Status status = plan.run(operands);
///     if (status.code() == StatusCode::busy) ...;
///     plan.run(operands).or_throw();
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Anything but ok, with its message.
  CONVOY_API Status(StatusCode code, const std::string& message);
  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  /// What was found, what was expected and what to do; empty when ok.
  const std::string& message() const { return message_; }
  /// Throws `Error(message())` unless ok; for callers that prefer exceptions.
  void or_throw() const {
    if (!ok()) throw Error(message_);
  }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

}  // namespace convoy
