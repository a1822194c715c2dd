// Python's exceptions: one class for each StatusCode below convoy.Error, with the library's own
// text.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "convoy/error.hpp"

namespace convoy::python {

/// Makes the classes in the module; from then on convoy::Error is raised as convoy.Error.
void define_errors(nanobind::module_& module);

/// Throws what Python sees as the code's exception. `cause`: a Python error that is its __cause__.
[[noreturn]] void raise(StatusCode code, const std::string& message);
[[noreturn]] void raise_from(nanobind::python_error& cause, StatusCode code,
                             const std::string& message);

/// A Python text in UTF-8, NUL characters too. Throws Error where it holds what UTF-8 can't (a lone
/// surrogate, as os.fsdecode makes them).
std::string utf8_of(nanobind::handle text);

/// The name of the object's type, for messages.
std::string name_of_type(nanobind::handle object);  // with its article: "a list", "an int"

inline void raise_unless_ok(const Status& status) {
  if (!status.ok()) raise(status.code(), status.message());
}

/// copy and pickle of the type raise TypeError with this text, which says what to do instead.
template <class Type>
Type& refuse_copies(Type& type, const char* message) {
  type.def(
      "__reduce_ex__",
      [message](nanobind::handle, nanobind::handle) -> nanobind::object {
        throw nanobind::type_error(message);
      },
      nanobind::arg("protocol"), nanobind::sig("def __reduce_ex__(self, protocol: int) -> Any"),
      "Raises TypeError: this object can be neither copied nor pickled.");
  return type;
}

}  // namespace convoy::python
