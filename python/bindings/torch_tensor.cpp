#include "torch_tensor.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include "errors.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// PyTorch's functions behind the methods of the same names: a call of a method takes a tenth of a
/// small stage's time, and each call asks several of each tensor. They take a Tensor, which is a
/// pointer, by its address. Null where this PyTorch has others: then the methods are called.
struct Direct {
  bool (*is_neg)(const void*) = nullptr;
  int (*storage_size)(const void*, std::int64_t*) = nullptr;    // in bytes
  int (*storage_offset)(const void*, std::int64_t*) = nullptr;  // in elements
  bool (*grad_enabled)() = nullptr;
  void (*bump_version)(const void*) = nullptr;
};

/// The Tensor that a Python object holds, behind its head.
const void* inside(nb::handle tensor) {
  return reinterpret_cast<const char*>(tensor.ptr()) + sizeof(PyObject);
}

/// Asks each function what is known, so that another layout or another meaning is seen here.
bool is_as_known(const Direct& direct, nb::handle torch) {
  if (!direct.is_neg || !direct.storage_size || !direct.storage_offset || !direct.grad_enabled ||
      !direct.bump_version)
    return false;
  const nb::object made = torch.attr("zeros")(7, nb::arg("device") = "cpu");
  const nb::object plain = made.attr("detach")()[nb::slice(nb::int_(2), nb::none(), nb::none())];
  const nb::object negative = torch.attr("_neg_view")(plain);
  for (const nb::object& one : {made, plain, negative}) {
    const auto address = nb::cast<std::uintptr_t>(one.attr("_cdata"));
    if (*static_cast<const std::uintptr_t*>(inside(one)) != address) return false;
  }
  std::int64_t bytes = 0, offset = 0;
  if (direct.storage_size(inside(plain), &bytes) != 0 || bytes != 28) return false;
  if (direct.storage_offset(inside(plain), &offset) != 0 || offset != 2) return false;
  if (direct.is_neg(inside(plain)) || !direct.is_neg(inside(negative))) return false;
  if (direct.grad_enabled() != nb::cast<bool>(torch.attr("is_grad_enabled")())) return false;
  if (nb::cast<bool>(made.attr("is_inference")())) return false;
  const auto before = nb::cast<std::int64_t>(made.attr("_version"));
  direct.bump_version(inside(made));
  return nb::cast<std::int64_t>(made.attr("_version")) == before + 1;
}

struct Torch {
  nb::object module = nb::module_::import_("torch");
  nb::object is_inference, increment_version;
  Direct direct;
  bool has_direct = false;

  Torch() {
    is_inference = module.attr("Tensor").attr("is_inference");
    increment_version = module.attr("_C").attr("_increment_version");
    void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    find(direct.is_neg, "_ZN2at6native6is_negERKNS_6TensorE");
    find(direct.storage_size, "aoti_torch_get_storage_size");
    find(direct.storage_offset, "aoti_torch_get_storage_offset");
    find(direct.grad_enabled, "aoti_torch_grad_mode_is_enabled");
    find(direct.bump_version, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE");
    // In inference_mode there are no counters to look at; there the methods are called once more.
    try {
      has_direct = is_as_known(direct, module);
    } catch (nb::python_error&) {  // as of a mode that makes other tensors
    } catch (const std::exception&) {
    }
  }
};

const Torch& torch() {
  static const Torch* kept = nullptr;  // no static of C++: see outputs.cpp
  if (!kept) {
    const nb::object normal = nb::module_::import_("torch").attr("inference_mode")(false);
    normal.attr("__enter__")();
    const Torch* const made = new Torch;
    normal.attr("__exit__")(nb::none(), nb::none(), nb::none());
    if (!kept) kept = made;
  }
  return *kept;
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
            "{}: {}, whose storage has {} bytes, expected {} or more. It was made smaller, as "
            "by untyped_storage().resize_(): pass a tensor that has all of its memory.",
            name, describe(view), bytes, expected));
}

void check_writable(const Torch& torch, nb::handle tensor, const char* name) {
  if (nb::cast<bool>(torch.is_inference(tensor)) &&
      !nb::cast<bool>(torch.module.attr("is_inference_mode_enabled")()))
    raise(StatusCode::invalid_operand,
          fmt::format("{0}: a tensor of inference_mode, which may not be written to outside of it; "
                      "expected another. Pass {0}.clone(), or call inside torch.inference_mode().",
                      name));
  const bool records = torch.has_direct ? torch.direct.grad_enabled()
                                        : nb::cast<bool>(torch.module.attr("is_grad_enabled")());
  if (records && nb::cast<bool>(tensor.attr("requires_grad")))
    raise(StatusCode::invalid_operand,
          fmt::format("{0}: a tensor that requires a gradient, and a plan keeps none of what it "
                      "writes; expected one that does not. Pass {0}.detach(), or call inside "
                      "torch.no_grad().",
                      name));
}

}  // namespace

void check_tensor(nb::handle tensor, const TensorView& view, const char* name, Access access) {
  const Torch& known = torch();
  if (is_negative(known, tensor))
    raise(StatusCode::invalid_operand,
          fmt::format("{}: {} whose negative bit is set, as of z.conj().imag, expected its numbers "
                      "in memory. Pass {}.resolve_neg().",
                      name, name_of_type(tensor), name));
  check_storage(known, tensor, view, name);
  if (access == Access::write) check_writable(known, tensor, name);
}

void count_write(nb::handle tensor) {
  const Torch& known = torch();
  if (nb::cast<bool>(known.is_inference(tensor))) return;  // it has no counter
  if (known.has_direct)
    known.direct.bump_version(inside(tensor));
  else
    known.increment_version(nb::make_tuple(tensor));
}

}  // namespace convoy::python
