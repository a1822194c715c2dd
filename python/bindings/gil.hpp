// The GIL, released while the library works.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace convoy::python {

/// As nanobind's gil_scoped_release; a daemon thread that is still in here when the interpreter
/// ends sleeps from then on. Python before 3.14 ends such a thread by unwinding it, which no
/// destructor of C++ lets pass: the process would abort.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  ~Released() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace convoy::python
