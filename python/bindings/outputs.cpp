// Streams of the caller, and new arrays of the caller's library.
#include <fmt/core.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "arrays.hpp"
#include "convoy/dlpack.hpp"
#include "core/dlpack_layout.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"
#include "errors.hpp"
#include "exchange.hpp"
#include "gil.hpp"
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
  std::shared_ptr<gpu::Event> written;  // on a GPU, behind the run that writes it

  /// Makes the consumer's stream wait for the run, as __dlpack__'s argument `stream` asks; the
  /// host, where `host_reads` it next.
  void wait_before(nb::handle stream, bool host_reads) const {
    if (!written) return;
    const auto handle = stream.is_none() ? std::int64_t{1} : nb::cast<std::int64_t>(stream);
    if (host_reads) return written->wait();
    if (handle == -1) return;  // the consumer sees to it
    written->hold_back({handle == 1 ? nullptr : reinterpret_cast<void*>(handle)});
  }
};

/// By the name of a capsule: what it holds, and how another name says that it was taken over.
template <class Managed>
constexpr const char* capsule_name = "dltensor";
template <>
constexpr const char* capsule_name<dlpack::ManagedVersioned> = "dltensor_versioned";

/// A capsule that owns a share of the memory.
template <class Managed, class Owner>
nb::object capsule_of(const std::shared_ptr<Tensor>& tensor, Owner lent) {
  struct Share {
    Managed managed{};
    Owner lent;
    std::shared_ptr<Tensor> tensor;
  };
  auto made = std::make_unique<Share>();
  made->managed = *reinterpret_cast<Managed*>(lent.get());
  made->lent = std::move(lent);
  made->tensor = tensor;
  made->managed.context = made.get();
  made->managed.deleter = [](Managed* self) { delete static_cast<Share*>(self->context); };
  constexpr const char* name = capsule_name<Managed>;
  PyObject* const capsule = PyCapsule_New(&made->managed, name, [](PyObject* self) {
    if (!PyCapsule_IsValid(self, name)) return;  // somebody took it over
    auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(self, name));
    managed->deleter(managed);
  });
  if (!capsule) throw nb::python_error();
  static_cast<void>(made.release());  // the capsule's
  return nb::steal(capsule);
}

/// The pair of numbers of an argument of __dlpack__.
std::pair<std::int64_t, std::int64_t> two_numbers(const char* name, nb::handle given) {
  std::pair<std::int64_t, std::int64_t> both;
  if (!nb::try_cast(given, both))
    throw nb::type_error(
        fmt::format("{}: {}, expected a tuple of two integers", name, name_of_type(given)).c_str());
  return both;
}

std::pair<std::int32_t, std::int32_t> dlpack_device(const SharedTensor& self) {
  const Device device = self.tensor->view().device;
  return {device.kind == DeviceKind::cpu ? dlpack::cpu : dlpack::cuda, device.index};
}

[[noreturn]] void refuse_exchange(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  throw nb::python_error();
}

/// What another library asks of its results: the array API standard has each argument. Without
/// max_version the consumer knows the form that DLPack had before version 1 and no other.
nb::object dlpack_of(const SharedTensor& self, nb::handle stream, nb::handle max_version,
                     nb::handle dl_device, nb::handle copy) {
  std::shared_ptr<Tensor> tensor = self.tensor;
  const auto here = dlpack_device(self);
  const auto where = dl_device.is_none() ? std::pair<std::int64_t, std::int64_t>(here)
                                         : two_numbers("dl_device", dl_device);
  const bool moves = where != std::pair<std::int64_t, std::int64_t>(here);
  const int copies = copy.is_none() ? -1 : PyObject_IsTrue(copy.ptr());
  if (copies < 0 && !copy.is_none()) throw nb::python_error();
  if (moves && where != std::pair<std::int64_t, std::int64_t>(dlpack::cpu, 0))
    refuse_exchange(fmt::format(
        "dl_device: ({}, {}), and this Tensor is on ({}, {}). Expected that device, or (1, 0), the "
        "host.",
        where.first, where.second, here.first, here.second));
  if (moves && copies == 0)
    refuse_exchange("copy: False, but dl_device names another device, which needs a copy.");
  const Device device = tensor->view().device;
  if (device.kind == DeviceKind::cuda) self.wait_before(stream, moves || copies == 1);
  if (moves || copies == 1) {
    const Released released;
    tensor = std::make_shared<Tensor>(moves ? tensor->to(Device{}) : tensor->clone());
  }
  const auto version = max_version.is_none() ? std::pair<std::int64_t, std::int64_t>(0, 0)
                                             : two_numbers("max_version", max_version);
  if (version.first < dlpack::version_major)
    return capsule_of<dlpack::Managed>(tensor, to_dlpack(tensor->view()));
  DLPackVersionedOwner lent = to_dlpack_versioned(tensor->view());
  auto* const managed = reinterpret_cast<dlpack::ManagedVersioned*>(lent.get());
  if (version.first == dlpack::version_major && version.second < dlpack::version_minor)
    managed->version.minor = static_cast<std::uint32_t>(std::max<std::int64_t>(0, version.second));
  if (tensor != self.tensor) managed->flags |= dlpack::flag_is_copied;
  return capsule_of<dlpack::ManagedVersioned>(tensor, std::move(lent));
}

/// For numpy.asarray. NumPy has no bf16.
nb::dict interface_of(const SharedTensor& self) {
  const TensorView& view = self.tensor->view();
  constexpr std::array<const char*, 5> names{"<f4", "<f2", nullptr, "|u1", "<i4"};
  const char* const name = names.at(static_cast<std::size_t>(view.dtype));
  if (!name || view.device.kind != DeviceKind::cpu)
    throw nb::attribute_error("__array_interface__: only for f32, f16, u8 and i32 on the CPU");
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
  // Of this, which has no memory, the library takes type, sizes and device.
  TensorView view(nullptr, dtype, shape, device);
  dlpack::Array like = dlpack::array_of(view, view.shape.data(), view.stride.data());
  dlpack::ManagedVersioned* made = nullptr;
  std::string why;
  const auto keep_message = [](void* context, const char* kind, const char* message) {
    *static_cast<std::string*>(context) = fmt::format("{}: {}", kind, message);
  };
  if (exchange.allocate(&like, &made, &why, keep_message) != 0) {
    if (PyErr_Occurred()) throw nb::python_error();
    raise(StatusCode::out_of_memory, fmt::format("a new tensor for the result: {}", why));
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
  return current_stream(type_of(array), device);
}

Stream current_stream(const ArrayType& type, Device device) {
  if (type.exchange && type.exchange->current_stream) {
    Stream stream;
    if (type.exchange->current_stream(dlpack::cuda, device.index, &stream.handle) != 0)
      throw nb::python_error();
    return stream;
  }
  if (type.maker == Maker::torch)
    return stream_of_handle(
        torch().module.attr("cuda").attr("current_stream")(device.index).attr("cuda_stream"));
  if (type.maker == Maker::cupy) {
    const With on(cupy().module.attr("cuda").attr("Device")(device.index));
    return stream_of_handle(cupy().module.attr("cuda").attr("get_current_stream")().attr("ptr"));
  }
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
      if (cupy().type(dtype).is_valid()) {
        const With on(cupy().module.attr("cuda").attr("Device")(device.index));
        made.object = cupy().empty(tuple_of(shape), cupy().type(dtype));
      }
      break;
    case Maker::numba:
      if (device.kind == DeviceKind::cuda && numpy().type(dtype).is_valid()) {
        const nb::object cuda = nb::module_::import_("numba.cuda");
        const With on(cuda.attr("gpus")[device.index]);
        made.object = cuda.attr("device_array")(tuple_of(shape), numpy().type(dtype));
      }
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
    made.object = nb::cast(SharedTensor{std::move(tensor), nullptr});
  }
  const bool is_tensor = nb::isinstance<SharedTensor>(made.object);
  if (channels_first && !is_tensor && type.maker != Maker::numba)
    made.object = channels_first_axes(type.maker, made.object);
  return made;
}

nb::object delivered(const ArrayType& type, nb::object made, Device device, Stream stream) {
  if (device.kind == DeviceKind::cuda && nb::isinstance<SharedTensor>(made)) {
    // Who asks for the memory may name another stream; by then this one may be gone.
    auto event = std::make_shared<gpu::Event>(device);
    event->record(stream);
    nb::cast<SharedTensor&>(made).written = std::move(event);
  }
  if (type.maker != Maker::jax || !nb::isinstance<SharedTensor>(made)) return made;
  return nb::module_::import_("jax.dlpack").attr("from_dlpack")(made);
}

void define_tensor(nb::module_& module) {
  nb::class_<SharedTensor>(
      module, "Tensor",
      "The memory of a result for a caller whose library cannot allocate it.\n\n"
      "Libraries that know DLPack take it without a copy: numpy.asarray(t), numpy.from_dlpack(t),\n"
      "torch.from_dlpack(t).\n\n"
      "Example:\n"
      "    >>> import array\n"
      "    >>> def floats(values, shape):\n"
      "    ...     return memoryview(array.array('f', values)).cast('B').cast('f', shape)\n"
      "    >>> plan = convoy.Plan('n1h2c1k1r1', floats([3], [1, 1, 1, 1]))\n"
      "    >>> plan(floats([0, 1, 2, 3], [1, 2, 2, 1]))\n"
      "    Tensor(f32[1,2,2,1] on cpu, contiguous)\n")
      .def(
          "__dlpack__", &dlpack_of, nb::kw_only(), nb::arg("stream").none() = nb::none(),
          nb::arg("max_version").none() = nb::none(), nb::arg("dl_device").none() = nb::none(),
          nb::arg("copy").none() = nb::none(),
          nb::sig("def __dlpack__(self, *, stream: typing.Any = None, max_version: tuple[int, int] "
                  "| None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = "
                  "None) -> typing.Any"),
          "Returns a DLPack capsule that shares the memory, as the array API standard "
          "describes.\n\n"
          "The capsule is of DLPack 1.1 if max_version allows it, else of the form before "
          "version 1.")
      .def("__dlpack_device__", &dlpack_device,
           "Returns the DLPack number of the device's kind, and the device's index.")
      .def_prop_ro("__array_interface__", &interface_of,
                   "NumPy's array interface, for f32, f16, u8 and i32 on the CPU.")
      .def_prop_ro(
          "shape",
          [](const SharedTensor& self) {
            const TensorView& view = self.tensor->view();
            return tuple_of({view.shape.begin(), view.shape.begin() + view.rank});
          },
          "The sizes of the axes, a tuple.")
      .def_prop_ro(
          "ndim", [](const SharedTensor& self) { return self.tensor->view().rank; },
          "The number of axes.")
      .def_prop_ro(
          "dtype",
          [](const SharedTensor& self) { return std::string(to_text(self.tensor->view().dtype)); },
          "The type of the elements: \"f32\", \"f16\", \"bf16\", \"u8\" or \"i32\".")
      .def_prop_ro(
          "device", [](const SharedTensor& self) { return to_text(self.tensor->view().device); },
          "The device, for example \"cpu\", \"cuda\" or \"cuda:1\".")
      .def("__repr__", [](const SharedTensor& self) {
        return "Tensor(" + describe(self.tensor->view()) + ")";
      });
}

}  // namespace convoy::python
