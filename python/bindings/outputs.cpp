// Streams of the caller, and new arrays of the caller's library.
#include <fmt/core.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <memory>

#include "arrays.hpp"
#include "convoy/dlpack.hpp"
#include "core/dlpack_layout.hpp"
#include "core/gpu.hpp"
#include "errors.hpp"
#include "exchange.hpp"
#include "stage.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

Stream stream_of_handle(nb::handle handle) {
  return {reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle))};
}

/// Functions and types of a library, looked up once and held as long as the process.
struct Library {
  nb::object module;
  nb::object empty;
  std::array<nb::object, 5> types;  // by DType; unset: the library has none

  static constexpr std::array<const char*, 5> names{"float32", "float16", "bfloat16", "uint8",
                                                    "int32"};
  explicit Library(const char* name) : module(nb::module_::import_(name)) {
    empty = module.attr("empty");
    for (std::size_t i = 0; i < names.size(); ++i) {
      types[i] = nb::getattr(module, names[i], nb::object());
      // NumPy makes a dtype of its classes at each call that is given one.
      if (types[i].is_valid() && nb::hasattr(module, "dtype") && PyType_Check(types[i].ptr()))
        types[i] = module.attr("dtype")(types[i]);
    }
  }
  const nb::object& type(DType dtype) const { return types[static_cast<std::size_t>(dtype)]; }
};
/// Not a static that C++ initialises once: while it imports, another thread may have the GIL, and
/// would wait here for ever with it.
const Library& found(const Library*& library, const char* name) {
  if (!library) library = new Library(name);
  return *library;
}
const Library& numpy() {
  static const Library* library = nullptr;
  return found(library, "numpy");
}
const Library& torch() {
  static const Library* library = nullptr;
  return found(library, "torch");
}
const Library& cupy() {
  static const Library* library = nullptr;
  return found(library, "cupy");
}

/// Memory that several DLPack structures and the Python object share.
struct SharedTensor {
  std::shared_ptr<Tensor> tensor;
};

void free_capsule(PyObject* capsule) {
  const char* const name = "dltensor_versioned";
  if (!PyCapsule_IsValid(capsule, name)) return;  // somebody took it over
  auto* const managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

/// A structure that owns a share of the memory.
dlpack::ManagedVersioned* share(const std::shared_ptr<Tensor>& tensor) {
  struct Share {
    dlpack::ManagedVersioned managed{};
    DLPackVersionedOwner lent;
    std::shared_ptr<Tensor> tensor;
  };
  auto made = std::make_unique<Share>();
  made->tensor = tensor;
  made->lent = to_dlpack_versioned(tensor->view());
  made->managed = *reinterpret_cast<dlpack::ManagedVersioned*>(made->lent.get());
  made->managed.context = made.get();
  made->managed.deleter = [](dlpack::ManagedVersioned* self) {
    delete static_cast<Share*>(self->context);
  };
  return &made.release()->managed;
}

nb::object capsule_of(const SharedTensor& self, const nb::kwargs&) {
  auto* const managed = share(self.tensor);
  PyObject* const capsule = PyCapsule_New(managed, "dltensor_versioned", free_capsule);
  if (!capsule) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

/// For numpy.asarray. NumPy has no bf16.
nb::dict interface_of(const SharedTensor& self) {
  const TensorView& view = self.tensor->view();
  constexpr std::array<const char*, 5> names{"<f4", "<f2", nullptr, "|u1", "<i4"};
  const char* const name = names.at(static_cast<std::size_t>(view.dtype));
  if (!name || view.device.kind != DeviceKind::cpu)
    throw nb::attribute_error("__array_interface__: for f32, f16, u8 and i32 on the CPU alone");
  nb::dict facts;
  facts["version"] = 3;
  facts["shape"] = tuple_of({view.shape.begin(), view.shape.begin() + view.rank});
  facts["typestr"] = name;
  facts["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(view.data), false);
  return facts;
}

/// Axes [..., H, W, C] as [..., C, H, W]: the same memory.
nb::object channels_first_axes(Maker maker, const nb::object& made) {
  const auto rank = nb::cast<int>(made.attr("ndim"));
  nb::list axes;
  for (int axis = 0; axis < rank - 3; ++axis) axes.append(axis);
  for (const int axis : {rank - 1, rank - 3, rank - 2}) axes.append(axis);
  return made.attr(maker == Maker::torch ? "permute" : "transpose")(nb::tuple(axes));
}

/// By the library's own C functions, in a tenth of the time that its Python function takes.
NewArray by_exchange(const ExchangeApi& exchange, DType dtype, const std::vector<Index>& shape,
                     Device device, bool channels_first) {
  // What is lent says dtype and device as DLPack does; its memory is never looked at.
  const DLPackVersionedOwner lent =
      to_dlpack_versioned(TensorView(nullptr, dtype, shape, device), DLPackAccess::read_and_write);
  dlpack::ManagedVersioned* made = nullptr;
  std::string why;
  const auto keep_message = [](void* context, const char* kind, const char* message) {
    *static_cast<std::string*>(context) = fmt::format("{}: {}", kind, message);
  };
  if (exchange.allocate(&reinterpret_cast<dlpack::ManagedVersioned*>(lent.get())->array, &made,
                        &why, keep_message) != 0) {
    if (PyErr_Occurred()) throw nb::python_error();
    raise(device.kind == DeviceKind::cpu ? StatusCode::out_of_memory : StatusCode::device_error,
          fmt::format("a new tensor for the result: {}", why));
  }
  NewArray array;
  array.view = from_dlpack(reinterpret_cast<const DLManagedTensorVersioned&>(*made));
  const auto rank = static_cast<std::size_t>(array.view.rank);
  if (channels_first && rank >= 3 && made->array.strides) {
    // Until it is handed over the structure is ours, and so are its lists.
    for (std::int64_t* const sizes : {made->array.shape, made->array.strides})
      std::rotate(sizes + rank - 3, sizes + rank - 1, sizes + rank);
  }
  void* object = nullptr;
  if (exchange.to_python(made, &object) != 0) throw nb::python_error();
  array.object = nb::steal(static_cast<PyObject*>(object));
  return array;
}

}  // namespace

Stream stream_of(nb::handle given, nb::handle array, Device device) {
  if (device.kind == DeviceKind::cpu) return {};
  if (!given.is_none()) {
    if (PyLong_Check(given.ptr())) return stream_of_handle(given);
    if (nb::hasattr(given, "__cuda_stream__"))
      return stream_of_handle(nb::cast<nb::tuple>(given.attr("__cuda_stream__")())[1]);
    for (const char* const name : {"cuda_stream", "ptr"})  // PyTorch, CuPy
      if (nb::hasattr(given, name)) return stream_of_handle(given.attr(name));
    raise(StatusCode::invalid_operand,
          fmt::format("stream: {}, expected a cudaStream_t as an integer, a stream of PyTorch or "
                      "CuPy, or an object with __cuda_stream__",
                      name_of_type(given)));
  }
  const ArrayType& type = type_of(array);
  if (type.exchange && type.exchange->current_stream) {
    Stream stream;
    if (type.exchange->current_stream(dlpack::cuda, device.index, &stream.handle) != 0)
      throw nb::python_error();
    return stream;
  }
  if (type.maker == Maker::torch)
    return stream_of_handle(
        torch().module.attr("cuda").attr("current_stream")(device.index).attr("cuda_stream"));
  if (type.maker == Maker::cupy)
    return stream_of_handle(cupy().module.attr("cuda").attr("get_current_stream")().attr("ptr"));
  return {};
}

NewArray new_array(const ArrayType& type, DType dtype, const std::vector<Index>& shape,
                   Device device, bool channels_first) {
  if (type.exchange && type.exchange->allocate && type.exchange->to_python)
    return by_exchange(*type.exchange, dtype, shape, device, channels_first);
  NewArray made;
  switch (type.maker) {
    case Maker::numpy:
      if (device.kind == DeviceKind::cpu && numpy().type(dtype).is_valid())
        made.object = numpy().empty(tuple_of(shape), numpy().type(dtype));
      break;
    case Maker::torch: {
      // The CPU is PyTorch's default, unless a program has set another.
      const nb::object where = device.kind == DeviceKind::cpu
                                   ? torch().module.attr("device")("cpu")
                                   : torch().module.attr("device")("cuda", device.index);
      made.object = torch().empty(tuple_of(shape), nb::arg("dtype") = torch().type(dtype),
                                  nb::arg("device") = where);
      break;
    }
    case Maker::cupy:
      if (cupy().type(dtype).is_valid())
        made.object = cupy().empty(tuple_of(shape), cupy().type(dtype));
      break;
    case Maker::jax:
    case Maker::other:
      break;
  }
  if (made.object.is_valid()) {
    Array array;
    array.take(made.object, "out", Access::write, device, {});
    made.view = array.view;
  } else {
    auto tensor = std::make_shared<Tensor>(dtype, shape, device);
    made.view = tensor->view();
    made.object = nb::cast(SharedTensor{std::move(tensor)});
  }
  if (channels_first && type.maker != Maker::jax && type.maker != Maker::other)
    made.object = channels_first_axes(type.maker, made.object);
  return made;
}

nb::object delivered(const ArrayType& type, nb::object made) {
  if (type.maker != Maker::jax || !nb::isinstance<SharedTensor>(made)) return made;
  return nb::module_::import_("jax.dlpack").attr("from_dlpack")(made);
}

void define_tensor(nb::module_& module) {
  nb::class_<SharedTensor>(
      module, "Tensor",
      "Memory of a result whose caller has an array type that can't be made here.\n\n"
      "Any library takes it without a copy: numpy.asarray(t), numpy.from_dlpack(t),\n"
      "torch.from_dlpack(t).\n\n"
      "    >>> import array\n"
      "    >>> def floats(values, shape):\n"
      "    ...     return memoryview(array.array('f', values)).cast('B').cast('f', shape)\n"
      "    >>> plan = convoy.Plan('n1h2c1k1r1', floats([3], [1, 1, 1, 1]))\n"
      "    >>> plan(floats([0, 1, 2, 3], [1, 2, 2, 1]))\n"
      "    Tensor(f32[1,2,2,1] on cpu, contiguous)\n")
      .def("__dlpack__", &capsule_of, "A capsule of DLPack 1.1; it shares the memory.")
      .def("__dlpack_device__",
           [](const SharedTensor& self) {
             const Device device = self.tensor->view().device;
             return nb::make_tuple(
                 device.kind == DeviceKind::cpu ? int{dlpack::cpu} : int{dlpack::cuda},
                 device.index);
           })
      .def_prop_ro("__array_interface__", &interface_of)
      .def_prop_ro("shape",
                   [](const SharedTensor& self) {
                     const TensorView& view = self.tensor->view();
                     return tuple_of({view.shape.begin(), view.shape.begin() + view.rank});
                   })
      .def_prop_ro("ndim", [](const SharedTensor& self) { return self.tensor->view().rank; })
      .def_prop_ro(
          "dtype",
          [](const SharedTensor& self) { return std::string(to_text(self.tensor->view().dtype)); })
      .def_prop_ro("device",
                   [](const SharedTensor& self) { return to_text(self.tensor->view().device); })
      .def("__repr__", [](const SharedTensor& self) {
        return "Tensor(" + describe(self.tensor->view()) + ")";
      });
}

}  // namespace convoy::python
