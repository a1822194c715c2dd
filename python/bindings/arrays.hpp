// Arrays of any library as views, without a copy: DLPack's exchange functions, the buffer protocol,
// __dlpack__, or the array interface, whichever the array's type has first.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <utility>
#include <vector>

#include "convoy/tensor.hpp"

namespace convoy::dlpack {
struct ManagedVersioned;
struct Managed;
}  // namespace convoy::dlpack

namespace convoy::python {

/// Whose array it is: outputs are made by the same library.
enum class Maker : std::uint8_t { numpy, torch, jax, cupy, numba, other };

struct ExchangeApi;

/// What is known of a Python type, looked up once.
struct ArrayType {
  Maker maker = Maker::other;
  bool buffer = false;                    // by the buffer protocol
  const ExchangeApi* exchange = nullptr;  // DLPack's C functions
};
const ArrayType& type_of(nanobind::handle array);

/// The stream that the caller's work is on: `given` (an integer, or an object of PyTorch, CuPy or
/// with __cuda_stream__), else the current stream of the library that `array` comes from. On the
/// CPU there is none.
Stream stream_of(nanobind::handle given, nanobind::handle array, Device device);

/// The stream that the library of such arrays works on now, of this thread.
Stream current_stream(const ArrayType& type, Device device);

/// A `with` block of Python: leaves what it entered.
class With {
 public:
  explicit With(nanobind::object context) : context_(std::move(context)) {
    context_.attr("__enter__")();
  }
  With(const With&) = delete;
  With& operator=(const With&) = delete;
  ~With() {
    try {
      context_.attr("__exit__")(nanobind::none(), nanobind::none(), nanobind::none());
    } catch (nanobind::python_error& error) {
      error.discard_as_unraisable("leaving a context");
    }
  }

 private:
  nanobind::object context_;
};

enum class Access : std::uint8_t { read, write };

/// What the second stream is given from now on runs after what the first has now. Throws Error.
void order(Stream first, Stream second, Device device);

/// An array as a view, valid while this lives. The array itself must live as long.
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array();

  /// Takes the array, which `name` names in errors; None leaves the view empty. On a GPU what the
  /// array's library still has to do to it comes before the stream's work. Raises InvalidOperand.
  void take(nanobind::handle array, const char* name, Access access, Device device = {},
            Stream stream = {});

  /// Keeps the array alive as long as this, and the memory that it has now: a tensor of PyTorch may
  /// be given other memory at any time. For what is read while other threads run Python.
  void hold(nanobind::handle array);

  /// Raises InvalidOperand where the array that was taken has other memory, another shape or
  /// another type by now.
  void check_unchanged(nanobind::handle array, const char* name) const;

  /// Whether code in Python was called to take it, which may have changed other arrays.
  bool called_python() const { return called_python_; }

  TensorView view;
  const ArrayType* type = nullptr;

 private:
  void take_exchange(nanobind::handle array, const ExchangeApi& exchange);
  void take_buffer(nanobind::handle array);
  void take_capsule(nanobind::handle array, Device device, Stream stream);
  void take_interface(nanobind::handle interface, Device device);
  void take_cuda_interface(nanobind::handle interface, const char* name, Device device,
                           Stream stream);

  bool read_only_ = false;
  bool called_python_ = false;
  std::array<Index, 5> taken_shape_{}, taken_stride_{};  // before axes were given other names
  nanobind::object held_, memory_;  // of hold; of an interface, which may own what it points to
  bool buffered_ = false;
  Py_buffer buffer_;  // where buffered_
  dlpack::ManagedVersioned* versioned_ = nullptr;
  dlpack::Managed* managed_ = nullptr;
};

/// A new array, its values undefined, and its view: dense [..., H, W, C].
struct NewArray {
  nanobind::object object;
  TensorView view;
};

/// Made by the library of `type`, or a convoy.Tensor where that has no such elements or is no known
/// one. channels_first: the object calls the axes [..., C, H, W], as a channels_last tensor does.
NewArray new_array(const ArrayType& type, DType dtype, const std::vector<Index>& shape,
                   Device device, bool channels_first = false);

/// What the caller gets of it once the stream has been given the work that writes it: JAX's arrays
/// never change, so that one is made only then.
nanobind::object delivered(const ArrayType& type, nanobind::object made, Device device,
                           Stream stream);

/// convoy.Tensor
void define_tensor(nanobind::module_& module);

}  // namespace convoy::python
