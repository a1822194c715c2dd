#include "arrays.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <unordered_map>

#include "convoy/dlpack.hpp"
#include "core/dlpack_layout.hpp"
#include "core/gpu_async.hpp"
#include "errors.hpp"
#include "exchange.hpp"
#include "torch_tensor.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

constexpr const char* exchange_name = "dlpack_exchange_api";

/// The library whose module a class is of: that of the array's type, or the first of its bases'.
Maker maker_of(nb::handle type) {
  for (nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__"))) {
    const std::string module = utf8_of(nb::str(nb::getattr(base, "__module__", nb::str(""))));
    const std::string_view root = std::string_view(module).substr(0, module.find('.'));
    if (root == "numpy") return Maker::numpy;
    if (root == "torch") return Maker::torch;
    if (root == "jax" || root == "jaxlib") return Maker::jax;
    if (root == "cupy") return Maker::cupy;
    if (root == "numba" || root == "numba_cuda") return Maker::numba;
  }
  return Maker::other;
}

const ExchangeApi* exchange_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), exchange_name)) return nullptr;
  const auto* api =
      static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), exchange_name));
  while (api && api->version.major != dlpack::version_major) api = api->previous;
  return api;
}

[[noreturn]] void not_an_array(nb::handle array, const char* name) {
  raise(StatusCode::invalid_operand,
        fmt::format("{}: {}, expected an array of NumPy, PyTorch, JAX or CuPy, or an object with "
                    "__dlpack__, the buffer protocol or an array interface. numpy.asarray(...) "
                    "makes an array from a list.",
                    name, name_of_type(array)));
}

DType dtype_of_format(const char* format, Py_ssize_t size) {
  std::string_view text = format ? format : "B";
  const bool swapped = !text.empty() && (text[0] == '>' || text[0] == '!');
  if (!text.empty() && std::string_view("@=<>!").find(text[0]) != std::string_view::npos)
    text.remove_prefix(1);
  if (!swapped && text.size() == 1) {
    if (text == "f" && size == 4) return DType::f32;
    if (text == "e" && size == 2) return DType::f16;
    if (text == "B" && size == 1) return DType::u8;
    if ((text == "i" || text == "l") && size == 4) return DType::i32;
  }
  throw Error(
      fmt::format("its elements have the format '{}' of {} bytes; expected float32 ('f'), "
                  "float16 ('e'), uint8 ('B') or int32 ('i') in this machine's byte order. "
                  "Convert it first, as in array.astype('float32').",
                  format ? format : "B", size));
}

/// The capsule that array.__dlpack__ gives. Older libraries don't know all its arguments.
nb::object capsule_of(nb::handle array, Device device, Stream stream) {
  const nb::object method = array.attr("__dlpack__");
  nb::dict arguments;
  if (device.kind == DeviceKind::cuda) {
    const auto where = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
    const auto type = nb::cast<int>(where[0]);
    // 1 is the default stream; 0 would be one that nobody may mean.
    if (type == dlpack::cuda || type == dlpack::cuda_managed)
      arguments["stream"] =
          stream.handle ? reinterpret_cast<std::uintptr_t>(stream.handle) : std::uintptr_t{1};
  }
  try {
    nb::dict versioned = nb::borrow<nb::dict>(arguments.attr("copy")());
    versioned["max_version"] = nb::make_tuple(dlpack::version_major, dlpack::version_minor);
    return method(**versioned);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**arguments);
}

/// The view of any tensor: `take` refuses one that is marked read only as an output.
TensorView view_of(const dlpack::ManagedVersioned& managed) {
  const ConstTensorView input =
      from_dlpack_read_only(reinterpret_cast<const DLManagedTensorVersioned&>(managed));
  TensorView view;
  static_cast<TensorDescriptor&>(view) = input;
  view.data = const_cast<void*>(input.data);
  return view;
}

}  // namespace

const ArrayType& type_of(nb::handle array) {
  // Held as long as the process: a type that was freed could be another one at the same address.
  static auto* const known = new std::unordered_map<PyObject*, ArrayType>;
  static PyObject* last = nullptr;
  static const ArrayType* of_last = nullptr;
  const nb::handle type = array.type();
  if (of_last && type.ptr() == last) return *of_last;
  const auto found = known->find(type.ptr());
  if (found != known->end()) {
    last = type.ptr();
    of_last = &found->second;
    return *of_last;
  }
  ArrayType made;
  made.maker = maker_of(type);
  made.exchange = exchange_of(type);
  made.buffer = PyObject_CheckBuffer(array.ptr()) != 0 &&
                (made.maker == Maker::numpy || !nb::hasattr(type, "__dlpack__"));
  type.inc_ref();
  return known->emplace(type.ptr(), made).first->second;
}

Array::~Array() {
  if (buffered_) PyBuffer_Release(&buffer_);
  if (versioned_ && versioned_->deleter) versioned_->deleter(versioned_);
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
}

void Array::take(nb::handle array, const char* name, Access access, Device device, Stream stream) {
  if (array.is_none()) return;
  type = &type_of(array);
  try {
    called_python_ = !type->exchange && !type->buffer;
    if (type->exchange)
      take_exchange(array, *type->exchange);
    else if (type->buffer)
      take_buffer(array);
    else if (nb::hasattr(array, "__dlpack__"))
      take_capsule(array, device, stream);
    else if (device.kind == DeviceKind::cuda && nb::hasattr(array, "__cuda_array_interface__"))
      take_cuda_interface(array.attr("__cuda_array_interface__"), name, device, stream);
    else if (nb::hasattr(array, "__array_interface__"))
      take_interface(array.attr("__array_interface__"), {});
    else if (nb::hasattr(array, "__cuda_array_interface__"))
      raise(StatusCode::invalid_operand,
            fmt::format("{}: {} on a GPU (with __cuda_array_interface__ only), expected an array "
                        "in host memory. Copy it there first, for example with numba's "
                        "copy_to_host(), or make the plan or network with "
                        "device=\"cuda\".",
                        name, name_of_type(array)));
    else
      not_an_array(array, name);
  } catch (const Error& error) {
    const bool of_array = error.code() == StatusCode::invalid_argument;
    raise(of_array ? StatusCode::invalid_operand : error.code(),
          fmt::format("{}: {}", name, error.what()));
  } catch (const std::bad_cast&) {
    raise(StatusCode::invalid_operand,
          fmt::format("{}: {} whose array interface has values of wrong types, expected shape, "
                      "typestr and data like NumPy's",
                      name, name_of_type(array)));
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_MemoryError) || !error.matches(PyExc_Exception)) throw;
    if (nb::hasattr(error.value(), "code")) throw;  // one of ours
    std::string why = utf8_of(nb::str(error.value()));
    why.resize(std::min(why.size(), why.find('\n')));  // PyTorch adds its own stack
    raise_from(error, StatusCode::invalid_operand,
               fmt::format("{}: {} that can't be read without a copy: {}", name,
                           name_of_type(array), why));
  }
  taken_shape_ = view.shape, taken_stride_ = view.stride;
  if (type->maker == Maker::torch) check_tensor(array, view, name, access);
  if (access == Access::write && type->maker == Maker::jax)
    raise(StatusCode::invalid_operand,
          fmt::format("{}: an array of JAX, which never changes; expected a writable one. Pass "
                      "none: a new array is made.",
                      name));
  if (access == Access::write && read_only_)
    raise(StatusCode::invalid_operand,
          fmt::format("{}: {} that is read only, expected a writable one. Pass a copy, or none: a "
                      "new array is made.",
                      name, name_of_type(array)));
}

void Array::take_exchange(nb::handle array, const ExchangeApi& exchange) {
  if (exchange.borrow) {
    dlpack::Managed lent{};
    if (exchange.borrow(array.ptr(), &lent.array) != 0) throw nb::python_error();
    view = from_dlpack(reinterpret_cast<const DLManagedTensor&>(lent));
    return;
  }
  if (exchange.from_python(array.ptr(), &versioned_) != 0) throw nb::python_error();
  read_only_ = (versioned_->flags & dlpack::flag_read_only) != 0;
  view = view_of(*versioned_);
}

void Array::take_buffer(nb::handle array) {
  if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
  buffered_ = true;
  read_only_ = buffer_.readonly != 0;
  if (buffer_.ndim > static_cast<int>(view.shape.size()))
    throw Error(fmt::format("{} axes, expected at most {}", buffer_.ndim, view.shape.size()));
  view.dtype = dtype_of_format(buffer_.format, buffer_.itemsize);
  view.rank = buffer_.ndim;
  view.data = buffer_.buf;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    view.shape[axis] = buffer_.shape[axis];
    view.stride[axis] = buffer_.strides[axis] / buffer_.itemsize;
    if (buffer_.strides[axis] % buffer_.itemsize != 0)
      throw Error(
          fmt::format("a stride of {} bytes, expected a multiple of the element's {}. Pass a "
                      "copy: numpy.ascontiguousarray(...)",
                      buffer_.strides[axis], buffer_.itemsize));
  }
}

void Array::take_capsule(nb::handle array, Device device, Stream stream) {
  const nb::object capsule = capsule_of(array, device, stream);
  const char* const versioned = "dltensor_versioned";
  if (PyCapsule_IsValid(capsule.ptr(), versioned)) {
    versioned_ =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), versioned));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    read_only_ = (versioned_->flags & dlpack::flag_read_only) != 0;
    view = view_of(*versioned_);
    return;
  }
  managed_ = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (!managed_) throw nb::python_error();
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  view = from_dlpack(reinterpret_cast<const DLManagedTensor&>(*managed_));
}

void Array::take_cuda_interface(nb::handle interface, const char* name, Device device,
                                Stream stream) {
  take_interface(interface, device);
  const auto facts = nb::cast<nb::dict>(interface);
  // An array without elements has no memory, so that it is on any device.
  if (view.data) view.device = gpu::device_of(view.data);
  if (!(view.device == device))
    raise(StatusCode::invalid_operand,
          fmt::format("{}: it is on {}, expected {}. Copy it there first.", name,
                      to_text(view.device), to_text(device)));
  const nb::object given = facts.contains("stream") ? nb::object(facts["stream"]) : nb::none();
  if (given.is_none()) return;
  const auto handle = nb::cast<std::uintptr_t>(given);
  if (handle == 0)
    throw Error(
        "its __cuda_array_interface__ has the stream 0, which the protocol forbids: expected "
        "None, 1 (the legacy default stream), 2 (the stream of each thread) or a handle.");
  order({reinterpret_cast<void*>(handle)}, stream, device);
}

void Array::take_interface(nb::handle interface, Device device) {
  const auto facts = nb::cast<nb::dict>(interface);
  memory_ = facts;
  const auto or_none = [&](const char* key) {
    return facts.contains(key) ? nb::object(facts[key]) : nb::none();
  };
  if (!or_none("mask").is_none())
    throw Error(
        "its array interface has a mask, which says that some of its elements are not valid; "
        "expected no mask. Fill them first, for example with numpy.ma.filled.");
  for (const char* const key : {"shape", "typestr", "data"})
    if (or_none(key).is_none())
      throw Error(fmt::format(
          "its array interface has no '{}', expected shape, typestr and data like NumPy's", key));
  const std::string text = utf8_of(nb::cast<nb::str>(facts["typestr"]));  // as "<f4"
  const bool swapped = !text.empty() && text[0] == '>';
  const std::string name = text.substr(text.empty() ? 0 : 1);
  if (swapped || (name != "f4" && name != "f2" && name != "u1" && name != "i4"))
    throw Error(
        fmt::format("its elements are '{}'; expected '<f4', '<f2', '|u1' or '<i4'. Convert "
                    "it first.",
                    text));
  view.dtype = name == "f4"   ? DType::f32
               : name == "f2" ? DType::f16
               : name == "u1" ? DType::u8
                              : DType::i32;
  const auto shape = nb::cast<nb::tuple>(facts["shape"]);
  if (shape.size() > view.shape.size())
    throw Error(fmt::format("{} axes, expected at most {}", shape.size(), view.shape.size()));
  const auto address = nb::cast<nb::tuple>(facts["data"]);
  view.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(address[0]));
  read_only_ = nb::cast<bool>(address[1]);
  view.rank = static_cast<int>(shape.size());
  view.device = device;
  const auto bytes = static_cast<Index>(size_of(view.dtype));
  const nb::object strides = or_none("strides");
  if (!strides.is_none() && nb::len(strides) != shape.size())
    throw Error(fmt::format("{} sizes and {} strides, expected equal numbers of both", shape.size(),
                            nb::len(strides)));
  Index dense = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    view.shape[axis] = nb::cast<Index>(shape[axis]);
    if (view.shape[axis] < 0)
      throw Error(
          fmt::format("axis {} has {} elements, expected 0 or more", axis, view.shape[axis]));
    const Index stride = strides.is_none() ? dense * bytes : nb::cast<Index>(strides[axis]);
    if (stride % bytes != 0)
      throw Error(fmt::format("a stride of {} bytes, expected a multiple of the element's {}",
                              stride, bytes));
    view.stride[axis] = stride / bytes;
    if (__builtin_mul_overflow(dense, view.shape[axis], &dense))
      throw Error("sizes whose product is too large");
  }
  if (!view.data && view.elements() > 0)
    throw Error(fmt::format("{} elements but no memory", view.elements()));
}

void order(Stream first, Stream second, Device device) {
  const auto known = [](Stream stream) {  // 1 is the legacy default stream, as null is
    return stream.handle == reinterpret_cast<void*>(std::uintptr_t{1}) ? nullptr : stream.handle;
  };
  // One handle, 2, is a stream of each thread; from this thread it is one stream.
  if (known(first) == known(second)) return;
  gpu::Event done(device);
  done.record(first);
  done.hold_back(second);
}

void Array::hold(nb::handle array) {
  held_ = nb::borrow(array);
  if (type && type->maker == Maker::torch) memory_ = array.attr("untyped_storage")();
}

void Array::check_unchanged(nb::handle array, const char* name) const {
  // What came by a capsule or an interface is the object's own promise.
  if (!view || called_python_) return;
  Array now;
  now.take(array, name, Access::read);
  if (now.view.data == view.data && now.view.dtype == view.dtype && now.view.rank == view.rank &&
      taken_shape_ == now.view.shape && taken_stride_ == now.view.stride)
    return;
  raise(StatusCode::invalid_operand,
        fmt::format("{}: it was changed while this call read it: {} now. Expected no change of its "
                    "memory and shape until the call returns; the result was dropped. Let other "
                    "threads wait, or pass a copy.",
                    name, describe(now.view)));
}

}  // namespace convoy::python
