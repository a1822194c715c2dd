#include "errors.hpp"

#include <array>

namespace nb = nanobind;

namespace convoy::python {
namespace {

struct Kind {
  StatusCode code;
  const char* name;      // as convoy has it
  PyObject** builtin;    // what it is besides, for callers that catch Python's own
  const char* document;  // of the class
};
// Looked up when the module is made: addresses of Python's objects are no constants. As in C++,
// invalid_argument is the code of Error itself.
std::array<Kind, 13> kinds() {
  return {{
      {StatusCode::invalid_operand, "InvalidOperand", &PyExc_ValueError,
       "An operand has a wrong shape, type, device, address or strides, or operands overlap."},
      {StatusCode::unsupported, "Unsupported", &PyExc_NotImplementedError,
       "The stage or the call is legal, but no kernel, or this installation, can do it."},
      {StatusCode::no_device, "NoDevice", nullptr, "This machine does not have the device."},
      {StatusCode::file_not_found, "FileNotFound", &PyExc_FileNotFoundError,
       "There is no file or folder of that name."},
      {StatusCode::file_error, "FileError", &PyExc_OSError,
       "A file or folder cannot be opened, read or written."},
      {StatusCode::invalid_file, "InvalidFile", &PyExc_ValueError,
       "The content of a file is wrong: damaged, cut short or of another kind."},
      {StatusCode::no_weights, "NoWeights", nullptr,
       "The plan has no weights yet. Call its `set_weights` or `use` first."},
      {StatusCode::no_workspace, "NoWorkspace", nullptr,
       "A run was given no workspace, and its plan owns none."},
      {StatusCode::busy, "Busy", nullptr,
       "The object is in use by another call, and only one at a time is allowed."},
      {StatusCode::moved_from, "MovedFrom", nullptr,
       "The object is empty: its content was moved to another object."},
      {StatusCode::out_of_memory, "OutOfMemory", &PyExc_MemoryError,
       "The memory of the host or of the GPU ran out."},
      {StatusCode::device_error, "DeviceError", nullptr, "The GPU or its driver failed."},
      {StatusCode::internal_error, "InternalError", nullptr,
       "The library has a fault. Please report it."},
  }};
}

// The classes live as long as the process: exceptions are raised until its end.
PyObject* base = nullptr;
std::array<PyObject*, 15> classes{};  // by StatusCode

nb::object code_text(StatusCode code) {
  const std::string_view text = to_text(code);
  return nb::str(text.data(), text.size());
}

PyObject* new_class(nb::module_& module, const char* name, nb::handle bases, const char* document,
                    const nb::object& code) {
  nb::dict members;
  members["code"] = code;
  // That of the extension, so that the stubs have them; convoy/__init__.py renames it.
  const std::string full = utf8_of(nb::str(module.attr("__name__"))) + "." + std::string(name);
  PyObject* const made =
      PyErr_NewExceptionWithDoc(full.c_str(), document, bases.ptr(), members.ptr());
  if (!made) throw nb::python_error();
  module.attr(name) = nb::handle(made);
  return made;
}

PyObject* class_of(StatusCode code) {
  PyObject* const found = classes.at(static_cast<std::size_t>(code));
  return found ? found : base;
}

}  // namespace

void define_errors(nb::module_& module) {
  base = new_class(
      module, "Error", nb::handle(PyExc_RuntimeError),
      "The base class of all errors of Convoy.\n\n"
      "The message says what was found, what was expected and what you can do. `code` names the\n"
      "kind of error for programs, for example \"busy\". Each kind has a class, except\n"
      "\"invalid_argument\": a stage, an option, a text or a number is wrong.\n\n"
      "Example:\n"
      "    >>> try:\n"
      "    ...     convoy.Stage(\"n1h8c8k8r9\")\n"
      "    ... except convoy.Error as error:\n"
      "    ...     print(error.code)\n"
      "    invalid_argument\n",
      code_text(StatusCode::invalid_argument));
  for (const Kind& kind : kinds()) {
    const nb::tuple bases = kind.builtin
                                ? nb::make_tuple(nb::handle(base), nb::handle(*kind.builtin))
                                : nb::make_tuple(nb::handle(base));
    classes.at(static_cast<std::size_t>(kind.code)) =
        new_class(module, kind.name, bases, kind.document, code_text(kind.code));
  }
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      PyErr_SetString(class_of(error.code()), error.what());
    }
  });
}

std::string utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes) return {bytes, static_cast<std::size_t>(size)};
  PyErr_Clear();
  const nb::object escaped = nb::steal(PyObject_ASCII(text.ptr()));
  if (!escaped) throw nb::python_error();
  throw Error(utf8_of(escaped) +
              ": found a text with a lone surrogate, which is not a character. Expected a text "
              "that UTF-8 can encode.");
}

std::string name_of_type(nb::handle object) {
  const std::string name = utf8_of(nb::str(object.type().attr("__qualname__")));
  const bool vowel = std::string_view("aeioAEIO").find(name.front()) != std::string_view::npos;
  return (vowel || name == "ndarray" ? "an " : "a ") + name;
}

void raise(StatusCode code, const std::string& message) {
  PyErr_SetString(class_of(code), message.c_str());
  throw nb::python_error();
}

void raise_from(nb::python_error& cause, StatusCode code, const std::string& message) {
  nb::raise_from(cause, class_of(code), "%s", message.c_str());
}

}  // namespace convoy::python
