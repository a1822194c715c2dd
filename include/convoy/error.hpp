/// @file
/// Errors: the functions named `run` are `noexcept` and return a `Status`; every other function
/// that can fail throws `Error`. Both have a `StatusCode`.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "convoy/export.hpp"

namespace convoy {

/// The kind of a failure, by which a program chooses its reaction. The message of the Error or
/// Status has the details.
enum class StatusCode : std::uint8_t {
  ok,                ///< no failure
  invalid_argument,  ///< a stage, option, text or number is wrong, or the call is not allowed now
  invalid_operand,   ///< shape, type, device, address or strides of a tensor; operands overlap
  unsupported,       ///< a legal stage or call that no kernel, or this build, can do
  no_device,         ///< this machine does not have the device
  file_not_found,    ///< there is no file or folder of that name
  file_error,        ///< a file or folder cannot be opened, read or written
  invalid_file,      ///< the content of a file is wrong: damaged, cut short or of another kind
  no_weights,        ///< the plan has no weights yet
  no_workspace,      ///< the run was given no workspace, and the plan owns none
  busy,              ///< other calls use the object; it takes no further one now
  moved_from,        ///< the object was moved from
  out_of_memory,     ///< the memory of the host or of the GPU ran out
  device_error,      ///< the GPU or its driver failed
  internal_error,    ///< anything else: a defect of the library
};
/// The name of a code, for example "invalid_operand"; "?" for a number that is no code.
CONVOY_API std::string_view to_text(StatusCode code);

/// The exception of this library: thrown if a stage is illegal, a plan can't be made, a file can't
/// be read or memory runs out.
///
/// The message names the thing found, the thing expected and an action, in one or two lines. A
/// function that throws Error has changed nothing, unless its comment says otherwise. No other
/// exception leaves the library, also none of the standard library.
///
///     try {
///       const Network network(folder, {.device = parse_device("cuda")});
///     } catch (const Error& error) {
///       if (error.code() == StatusCode::no_device) ...;  // the same on the CPU
///     }
class CONVOY_API Error : public std::runtime_error {
 public:
  /// An error with this message and code. Control characters in the message are replaced.
  explicit Error(const std::string& message, StatusCode code = StatusCode::invalid_argument);
  /// Defined in the library, so that one copy of the type's information exists.
  ~Error() override;
  /// The kind of failure; never StatusCode::ok.
  StatusCode code() const noexcept { return code_; }

 private:
  StatusCode code_;
};

/// The result of a `run`: a code and, if the run failed, a message. A `run` never throws, so you
/// can call it from any runtime.
///
///     const Status status = plan.run(operands);
///     if (status.code() == StatusCode::busy) ...;
///     plan.run(operands).or_throw();
class [[nodiscard]] Status {
 public:
  /// No failure.
  Status() = default;
  /// A failure with its message.
  CONVOY_API Status(StatusCode code, const std::string& message);
  /// Whether the run succeeded.
  bool ok() const { return code_ == StatusCode::ok; }
  /// The kind of failure; StatusCode::ok if there is none.
  StatusCode code() const { return code_; }
  /// The failure in words: the value found, the value expected and an action. Empty if ok().
  const std::string& message() const { return message_; }
  /// Throws Error with message() and code() unless ok(), for callers that prefer exceptions.
  void or_throw() const {
    if (!ok()) throw Error(message_, code_);
  }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

}  // namespace convoy
