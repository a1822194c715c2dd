#include "torch_tensor.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <vector>

#include "errors.hpp"
#include "exchange.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// PyTorch's functions behind the methods of the same names: a call of a method takes a tenth of a
/// small stage's time, and each call asks several of each tensor. They take a Tensor, which is a
/// pointer, by its address. Null where this PyTorch has others: then the methods are called.
struct Direct {
  bool (*is_neg)(const void*) = nullptr;
  bool (*is_inference)(const void*) = nullptr;
  int (*storage_size)(const void*, std::int64_t*) = nullptr;    // in bytes
  int (*storage_offset)(const void*, std::int64_t*) = nullptr;  // in elements
  bool (*grad_enabled)() = nullptr;
  int (*device_type)(const void*, std::int32_t*) = nullptr;  // 0: the CPU, 1: CUDA
  void (*bump_version)(const void*) = nullptr;
  bool (*requires_grad)(const void*) = nullptr;  // takes what the Tensor points to

  bool complete() const {
    return is_neg && is_inference && device_type && storage_size && storage_offset &&
           grad_enabled && bump_version && requires_grad;
  }
};

/// The Tensor that a Python object holds, behind its head.
const void* inside(nb::handle tensor) {
  return reinterpret_cast<const char*>(tensor.ptr()) + sizeof(PyObject);
}

/// What a Tensor points to.
const void* implementation(nb::handle tensor) {
  return *static_cast<const void* const*>(inside(tensor));
}

/// Asks each function what is known, so that another layout or another meaning is seen here.
bool is_as_known(const Direct& direct, nb::handle torch) {
  if (!direct.complete()) return false;
  const nb::object made = torch.attr("zeros")(7, nb::arg("device") = "cpu");
  const nb::object plain = made.attr("detach")()[nb::slice(nb::int_(2), nb::none(), nb::none())];
  const nb::object negative = torch.attr("_neg_view")(plain);
  for (const nb::object& one : {made, plain, negative}) {
    const auto address = nb::cast<std::uintptr_t>(one.attr("_cdata"));
    if (reinterpret_cast<std::uintptr_t>(implementation(one)) != address) return false;
  }
  std::int64_t bytes = 0, offset = 0;
  if (direct.storage_size(inside(plain), &bytes) != 0 || bytes != 28) return false;
  if (direct.storage_offset(inside(plain), &offset) != 0 || offset != 2) return false;
  std::int32_t device = -1;
  if (direct.device_type(inside(plain), &device) != 0 || device != 0) return false;
  if (direct.is_neg(inside(plain)) || !direct.is_neg(inside(negative))) return false;
  if (direct.grad_enabled() != nb::cast<bool>(torch.attr("is_grad_enabled")())) return false;
  const nb::object trained = made.attr("clone")().attr("requires_grad_")();
  if (direct.requires_grad(implementation(made)) || !direct.requires_grad(implementation(trained)))
    return false;
  nb::object inferred;
  {
    const With inference(torch.attr("inference_mode")());
    inferred = torch.attr("zeros")(1, nb::arg("device") = "cpu");
  }
  if (direct.is_inference(inside(made)) || !direct.is_inference(inside(inferred))) return false;
  const auto before = nb::cast<std::int64_t>(made.attr("_version"));
  direct.bump_version(inside(made));
  return nb::cast<std::int64_t>(made.attr("_version")) == before + 1;
}

bool by_methods = false;  // for tests

struct Torch {
  nb::object module = nb::module_::import_("torch");
  nb::object is_inference, increment_version, tensor, parameter;
  Direct direct;
  bool has_direct = false;

  Torch() {
    is_inference = module.attr("Tensor").attr("is_inference");
    increment_version = module.attr("_C").attr("_increment_version");
    tensor = module.attr("Tensor");
    parameter = module.attr("nn").attr("Parameter");
    if (by_methods) return;
    void* const core = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library || !core) return;
    const auto find = [](auto& function, void* in, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(in, name));
    };
    find(direct.is_neg, library, "_ZN2at6native6is_negERKNS_6TensorE");
    find(direct.storage_size, library, "aoti_torch_get_storage_size");
    find(direct.storage_offset, library, "aoti_torch_get_storage_offset");
    find(direct.device_type, library, "aoti_torch_get_device_type");
    find(direct.grad_enabled, library, "aoti_torch_grad_mode_is_enabled");
    find(direct.is_inference, library, "_ZN2at6native12is_inferenceERKNS_6TensorE");
    find(direct.requires_grad, core, "_ZNK3c1010TensorImpl13requires_gradEv");
    find(direct.bump_version, library, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE");
    // In inference_mode there are no counters to look at; there the methods are called once more.
    try {
      has_direct = is_as_known(direct, module);
    } catch (nb::python_error&) {  // as of a mode that makes other tensors
    } catch (const std::exception&) {
    }
  }
};

const Torch* kept = nullptr;  // no static of C++: see outputs.cpp

const Torch& torch() {
  if (!kept) {
    const With normal(nb::module_::import_("torch").attr("inference_mode")(false));
    const Torch* const made = new Torch;
    if (!kept) kept = made;
  }
  return *kept;
}

bool is_inference(const Torch& torch, nb::handle tensor) {
  if (torch.has_direct) return torch.direct.is_inference(inside(tensor));
  return nb::cast<bool>(torch.is_inference(tensor));
}

bool requires_grad(const Torch& torch, nb::handle tensor) {
  if (torch.has_direct) return torch.direct.requires_grad(implementation(tensor));
  return nb::cast<bool>(tensor.attr("requires_grad"));
}

bool is_negative(const Torch& torch, nb::handle tensor) {
  if (torch.has_direct) return torch.direct.is_neg(inside(tensor));
  return nb::cast<bool>(tensor.attr("is_neg")());
}

/// Raises where the storage ends before the view does, as after untyped_storage().resize_.
void check_storage(const Torch& torch, nb::handle tensor, const TensorView& view,
                   const char* name) {
  std::int64_t bytes = 0, offset = 0;
  if (!torch.has_direct || torch.direct.storage_size(inside(tensor), &bytes) != 0 ||
      torch.direct.storage_offset(inside(tensor), &offset) != 0) {
    bytes = nb::cast<std::int64_t>(tensor.attr("untyped_storage")().attr("nbytes")());
    offset = nb::cast<std::int64_t>(tensor.attr("storage_offset")());
  }
  std::int64_t last = offset;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    if (view.shape[axis] == 0) return;
    last += (view.shape[axis] - 1) * view.stride[axis];
  }
  const auto expected = (last + 1) * static_cast<std::int64_t>(size_of(view.dtype));
  if (bytes >= expected) return;
  raise(StatusCode::invalid_operand,
        fmt::format(
            "{}: {}, whose storage has {} bytes, expected {} or more. It was made smaller, for "
            "example by untyped_storage().resize_(). Pass a tensor that has all of its memory.",
            name, describe(view), bytes, expected));
}

void check_writable(const Torch& torch, nb::handle tensor, const char* name) {
  if (is_inference(torch, tensor) &&
      !nb::cast<bool>(torch.module.attr("is_inference_mode_enabled")()))
    raise(
        StatusCode::invalid_operand,
        fmt::format(
            "{0}: a tensor of inference_mode, which may not be written to outside of it; expected "
            "an ordinary tensor. Pass {0}.clone(), or call inside torch.inference_mode().",
            name));
  const bool records = torch.has_direct ? torch.direct.grad_enabled()
                                        : nb::cast<bool>(torch.module.attr("is_grad_enabled")());
  if (records && requires_grad(torch, tensor))
    raise(StatusCode::invalid_operand,
          fmt::format(
              "{0}: a tensor that requires a gradient, but a plan keeps no gradients of its "
              "outputs; expected a tensor that requires none. Pass {0}.detach(), or call inside "
              "torch.no_grad().",
              name));
}

}  // namespace

void check_tensor(nb::handle tensor, const TensorView& view, const char* name, Access access) {
  const Torch& known = torch();
  if (is_negative(known, tensor))
    raise(StatusCode::invalid_operand,
          fmt::format("{}: {} whose negative bit is set, like z.conj().imag, expected its numbers "
                      "in memory. Pass {}.resolve_neg().",
                      name, name_of_type(tensor), name));
  check_storage(known, tensor, view, name);
  if (access == Access::write) check_writable(known, tensor, name);
}

void count_write(nb::handle tensor) {
  const Torch& known = torch();
  if (is_inference(known, tensor)) return;  // it has no counter
  if (known.has_direct)
    known.direct.bump_version(inside(tensor));
  else
    known.increment_version(nb::make_tuple(tensor));
}

namespace {

void ask_torch_by_methods(bool methods) {
  by_methods = methods;
  kept = nullptr;  // what there was stays in memory: another thread may be asking it
}

bool is_plain(nb::handle x, const nb::args& others) {
  const Torch& known = torch();
  if (!x.type().is(known.tensor)) return false;
  if (!known.has_direct) {
    if (!nb::cast<bool>(x.attr("is_cpu")) && !nb::cast<bool>(x.attr("is_cuda"))) return false;
  } else if (std::int32_t device = -1;
             known.direct.device_type(inside(x), &device) != 0 || device < 0 || device > 1) {
    return false;
  }
  bool trained = requires_grad(known, x);
  if (is_negative(known, x)) return false;
  for (const nb::handle one : others) {
    if (one.is_none()) continue;
    const nb::handle type = one.type();
    if (!type.is(known.tensor) && !type.is(known.parameter)) return false;
    if (is_negative(known, one)) return false;
    trained = trained || requires_grad(known, one);
  }
  if (!trained) return true;
  return known.has_direct ? !known.direct.grad_enabled()
                          : !nb::cast<bool>(known.module.attr("is_grad_enabled")());
}

/// Adds words that tell the tensor's type, device and sizes, and of weights strides, memory and
/// storage, too. False where they are not to be had, and for a tensor without elements.
template <class Add>
bool add_place(const Torch& torch, nb::handle tensor, bool weights, const Add& add) {
  const ArrayType& type = type_of(tensor);
  if (type.maker != Maker::torch || !type.exchange || !type.exchange->borrow) return false;
  dlpack::Array lent{};
  if (type.exchange->borrow(tensor.ptr(), &lent) != 0) {
    PyErr_Clear();  // what follows says why, in words of its own
    return false;
  }
  if (lent.ndim > 5) return false;
  add(static_cast<std::int64_t>(lent.device.type) << 32 | lent.device.number);
  add(lent.dtype.code << 16 | lent.dtype.bits << 8 | lent.ndim);
  for (int axis = 0; axis < lent.ndim; ++axis) {
    if (lent.shape[axis] == 0) return false;
    add(lent.shape[axis]);
  }
  if (!weights) return true;
  for (int axis = 0; axis < lent.ndim; ++axis) add(lent.strides[axis]);
  std::int64_t bytes = 0;
  if (torch.direct.storage_size(inside(tensor), &bytes) != 0) return false;
  add(bytes);
  add(reinterpret_cast<std::intptr_t>(lent.data) + static_cast<std::int64_t>(lent.byte_offset));
  return true;
}

constexpr std::size_t words_of_tensor = 14;

nb::object places(nb::handle x, const nb::args& weights) {
  const Torch& known = torch();
  constexpr std::size_t most = 8;
  if (!known.has_direct || weights.size() > most) return nb::none();
  std::array<std::int64_t, words_of_tensor*(most + 1)> words{};
  std::size_t count = 0;
  const auto add = [&](std::int64_t word) { words.at(count++) = word; };
  if (!add_place(known, x, false, add)) return nb::none();
  for (const nb::handle one : weights) {
    if (one.is_none())
      add(-1);
    else if (!add_place(known, one, true, add))
      return nb::none();
  }
  return nb::bytes(words.data(), count * sizeof(words[0]));
}

nb::object all_places(const nb::list& tensors) {
  const Torch& known = torch();
  if (!known.has_direct) return nb::none();
  std::vector<std::int64_t> words;
  words.reserve(words_of_tensor * tensors.size());
  const auto add = [&](std::int64_t word) { words.push_back(word); };
  for (const nb::handle one : tensors) {
    if (one.is_none()) {
      add(-1);
      continue;
    }
    const nb::handle type = one.type();
    if (!type.is(known.tensor) && !type.is(known.parameter)) return nb::none();
    if (!add_place(known, one, true, add)) return nb::none();
  }
  return nb::bytes(words.data(), words.size() * sizeof(words[0]));
}

}  // namespace

void define_torch(nb::module_& module) {
  module.def("_ask_torch_by_methods", &ask_torch_by_methods, nb::arg("methods"),
             "For tests: sets whether PyTorch tensors are read through their Python methods.");
  module.def("_is_plain", &is_plain, nb::arg("x"), nb::arg("others"),
             "Returns whether x and the others are plain PyTorch tensors on the CPU or CUDA: no "
             "subclass, no negative bit, no gradient needed. Others that are None are skipped.");
  module.def(
      "_places", &places, nb::arg("x"), nb::arg("weights"),
      "Returns bytes that identify type, device and shape of x, and type, device, shape, strides "
      "and memory of each weight. Returns None if they cannot be found or a tensor is empty.");
  module.def(
      "_all_places", &all_places, nb::arg("tensors"),
      "Returns bytes as those of `_places` of the weights, for a list of any length. Returns "
      "None also if a tensor is of a subclass.");
}

}  // namespace convoy::python
