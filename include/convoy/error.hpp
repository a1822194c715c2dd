// Errors: what was asked, what was found, and what to do.
#pragma once

#include <stdexcept>
#include <string>

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

/// What `Plan::run` returns: it never throws, so that it can be called from any runtime.
/// `message` is empty exactly when `ok()`.
class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(std::string message) : message_(std::move(message)) {}
  bool ok() const { return message_.empty(); }
  const std::string& message() const { return message_; }
  /// Throws `Error(message())` unless ok; for callers that prefer exceptions.
  void or_throw() const {
    if (!ok()) throw Error(message_);
  }

 private:
  std::string message_;
};

}  // namespace convoy
