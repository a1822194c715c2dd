#include "stage_values.hpp"

#include <fmt/core.h>
#include <nanobind/stl/string.h>

#include <charconv>
#include <utility>

#include "core/stage_text.hpp"
#include "errors.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

constexpr const char* activation_document =
    R"doc(An activation or a spiking neuron: the rider that is applied to conv + bias.

`Stage.act` is one. It is immutable, equal ones have equal hashes, and its repr is its text. It is
false if it is no activation, and true otherwise. Its numbers are f32 numbers, each given as the
shortest decimal number that reads back as it: 0.1 for "leaky(0.1)".

Args:
    text: The rider (docs/use/stages.md): "relu", "relu6", "clip(0,1)", "leaky(0.1)", "if(1)" or
        "lif(2,1)". "none": no activation.

Raises:
    Error: The text is not one activation.

Example:
    >>> act = convoy.Stage("n1h8c4k4r3+lif(2,0.5)").act
    >>> act, act.kind, act.tau, act.threshold
    (lif(2,0.5), 'lif', 2.0, 0.5)
    >>> act == convoy.Activation("lif(2,0.5)")
    True
)doc";

constexpr const char* pool_document =
    R"doc(A max-pool, as PyTorch's MaxPool2d defines it.

`Stage.pool` is one, or None. It is immutable, equal ones have equal hashes, and its repr is its
text. Sizes are integers or pairs (height, width).

Args:
    window: The window; or the whole rider as a text (docs/use/stages.md), such as "max3s2p1".
    stride: The distance between two windows. None: the window.
    pad: The padding on both sides, at most half of the window. None: 0.
    dil: The distance between the pixels of a window. None: 1.
    ceil: Round the number of windows up, as PyTorch's ceil_mode.

Raises:
    Error: A size is not a whole number, or the text is not one pool.

Example:
    >>> pool = convoy.Pool(3, stride=2, pad=1)
    >>> pool, pool.window, pool.stride
    (max3s2p1, (3, 3), (2, 2))
    >>> convoy.Stage(h=8, c=4, k=4, r=3, pool=pool)
    n1h8w8c4k4r3+max3s2p1
)doc";

constexpr const char* keep_document =
    R"doc(The second outputs that a stage writes beside y.

`Stage.keep` is one. It is immutable, equal ones have equal hashes, and its repr is its text. It is
false if nothing is kept, and true otherwise.

Args:
    names: The outputs to keep, "pre", "act" and "idx", as a sequence, or as a text such as
        "pre,idx". Empty: none.

Raises:
    Error: A name is unknown or given twice.

Example:
    >>> keep = convoy.Stage("n1h8c4k4r3+relu+max2+keep(idx)").keep
    >>> keep, keep.pre, keep.idx
    (keep(idx), False, True)
)doc";

/// The part in the text of one rider. Throws Error if the text has no such part, or others too.
template <class Part>
Part only(const std::string& what, const std::string& text, Part Stage::*part) {
  GivenAxes given;
  Stage stage = parse_stage_parts("+" + text, given);
  const Part found = std::exchange(stage.*part, Part());
  if (found == Part() || stage != Stage())
    throw Error(
        fmt::format("{}: found '{}', expected one rider of this kind. docs/use/stages.md "
                    "lists the riders",
                    what, text));
  return found;
}

/// The text of a part, from its "+" on; empty if the part is not there.
template <class Part>
std::string rider(const Part& value, Part Stage::*part) {
  Stage stage;
  const std::size_t bare = to_text(stage).size();
  stage.*part = value;
  return to_text(stage).substr(bare);
}

std::string rider(const Activation& act) {
  return rider(act, &Stage::act);
}
std::string rider(const Pool& pool) {
  return rider(std::optional(pool), &Stage::pool);
}
std::string rider(const Keep& keep) {
  return rider(keep, &Stage::keep);
}

Activation read_act(const std::string& text) {
  return text == "none" ? Activation() : only("Activation", text, &Stage::act);
}
Pool read_pool(const std::string& text) {
  return *only("Pool", text.starts_with("max") ? text : "max" + text, &Stage::pool);
}
Keep read_keep(const std::string& text) {
  if (text.empty() || text == "keep()") return {};
  return only("Keep", text.starts_with("keep(") ? text : "keep(" + text + ")", &Stage::keep);
}

std::string repr_of(const Activation& act) {
  return act != no_act ? rider(act).substr(1) : "none";
}
std::string repr_of(const Pool& pool) {
  return rider(pool).substr(1);
}
std::string repr_of(const Keep& keep) {
  return keep.any() ? rider(keep).substr(1) : "keep()";
}

/// "pre,idx" of a sequence of names; a text is taken as it is.
std::string names_text(const std::string& what, nb::handle value) {
  if (nb::isinstance<nb::str>(value) || !nb::hasattr(value, "__iter__"))
    return word_text(what, value);
  std::string text;
  for (nb::handle name : value) text += (text.empty() ? "" : ",") + word_text(what, name);
  return text;
}

Pool pool_of_sizes(nb::handle window, nb::handle stride, nb::handle pad, nb::handle dil,
                   nb::handle ceil) {
  std::string text = sizes_text("Pool: window", window);
  if (!stride.is_none()) text += "s" + sizes_text("Pool: stride", stride);
  if (!pad.is_none()) text += "p" + sizes_text("Pool: pad", pad);
  if (!dil.is_none()) text += "d" + sizes_text("Pool: dil", dil);
  if (flag_of("Pool: ceil", ceil)) text += "ceil";
  return read_pool(text);
}

nb::typed<nb::tuple, int, int> pair_of(Extent extent) {
  return nb::make_tuple(extent.h, extent.w);
}

/// What all three have: text, equality, a hash, and pickling by the text.
template <class Part>
void define_value(nb::class_<Part>& type, Part (*read)(const std::string&)) {
  type.def("__repr__", [](const Part& self) { return repr_of(self); })
      .def(
          "__eq__", [](const Part& self, const Part& other) { return self == other; },
          nb::is_operator())
      .def("__hash__", [](const Part& self) { return nb::hash(nb::cast(repr_of(self))); })
      .def("__getstate__", [](const Part& self) { return repr_of(self); })
      .def("__setstate__",
           [read](Part& self, const std::string& text) { new (&self) Part(read(text)); });
}

}  // namespace

std::string word_text(const std::string& what, nb::handle value) {
  if (nb::isinstance<nb::str>(value)) return utf8_of(value);
  if (!PyIndex_Check(value.ptr()) || PyBool_Check(value.ptr()))
    throw Error(
        fmt::format("{} is {}, expected text, an integer or, for sizes, a sequence of integers",
                    what, name_of_type(value)));
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number) throw nb::python_error();
  return utf8_of(nb::str(number));
}

std::string sizes_text(const std::string& what, nb::handle value) {
  if (nb::isinstance<nb::str>(value) || !nb::hasattr(value, "__iter__"))
    return word_text(what, value);
  std::string text;
  for (nb::handle size : value) text += (text.empty() ? "" : "x") + word_text(what, size);
  return text;
}

bool flag_of(const std::string& what, nb::handle value) {
  const int set = nb::isinstance<nb::str>(value) ? -1 : PyObject_IsTrue(value.ptr());
  if (set >= 0) return set == 1;
  PyErr_Clear();  // an array of several
  throw Error(fmt::format("{} is {}, expected True or False", what, name_of_type(value)));
}

std::string act_text(const std::string& what, nb::handle value) {
  if (value.is_none()) return {};
  return rider(nb::isinstance<Activation>(value) ? nb::cast<Activation>(value)
                                                 : read_act(word_text(what, value)));
}

std::string pool_text(const std::string& what, nb::handle value) {
  if (value.is_none()) return {};
  return rider(nb::isinstance<Pool>(value) ? nb::cast<Pool>(value)
                                           : read_pool(sizes_text(what, value)));
}

std::string keep_text(const std::string& what, nb::handle value) {
  if (value.is_none()) return {};
  return rider(nb::isinstance<Keep>(value) ? nb::cast<Keep>(value)
                                           : read_keep(names_text(what, value)));
}

double decimal(float value) {
  char buffer[64];  // any fp32 number fits
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  double number = 0;
  std::from_chars(buffer, end, number);
  return number;
}

void define_stage_values(nb::module_& module) {
  auto activation = nb::class_<Activation>(module, "Activation", activation_document);
  activation
      .def(
          "__init__",
          [](Activation* self, nb::handle text) {
            new (self) Activation(read_act(word_text("Activation: text", text)));
          },
          nb::arg("text") = "none", nb::sig("def __init__(self, text: str = 'none') -> None"))
      .def("__bool__", [](const Activation& self) { return self != no_act; })
      .def_prop_ro(
          "kind", [](const Activation& self) { return std::string(name_of(self.kind)); },
          "\"none\", \"relu\", \"relu6\", \"clip\", \"leaky\", \"if\" or \"lif\".")
      .def_prop_ro(
          "is_neuron", [](const Activation& self) { return self.is_neuron(); },
          "Whether it is a spiking neuron, \"if\" or \"lif\".")
      .def_prop_ro(
          "lo", [](const Activation& self) { return decimal(self.lo()); },
          "The lower bound of \"clip\"; 0 for every other kind.")
      .def_prop_ro(
          "hi", [](const Activation& self) { return decimal(self.hi()); },
          "The upper bound of \"clip\"; 0 for every other kind.")
      .def_prop_ro(
          "slope", [](const Activation& self) { return decimal(self.slope()); },
          "The slope of \"leaky\" below 0; 0 for every other kind.")
      .def_prop_ro(
          "tau", [](const Activation& self) { return decimal(self.tau()); },
          "The time constant of \"lif\", in time steps; 0 for every other kind.")
      .def_prop_ro(
          "threshold", [](const Activation& self) { return decimal(self.threshold()); },
          "The threshold of a neuron; 0 for every other kind.");
  define_value(activation, &read_act);

  const auto none = nb::none();
  auto pool = nb::class_<Pool>(module, "Pool", pool_document);
  pool.def(
          "__init__",
          [](Pool* self, nb::handle window, nb::handle stride, nb::handle pad, nb::handle dil,
             nb::handle ceil) { new (self) Pool(pool_of_sizes(window, stride, pad, dil, ceil)); },
          nb::arg("window"), nb::arg("stride").none() = none, nb::arg("pad").none() = none,
          nb::arg("dil").none() = none, nb::arg("ceil") = false,
          nb::sig("def __init__(self, window: int | tuple[int, int] | str, "
                  "stride: int | tuple[int, int] | None = None, "
                  "pad: int | tuple[int, int] | None = None, "
                  "dil: int | tuple[int, int] | None = None, ceil: bool = False) -> None"))
      .def_prop_ro(
          "window", [](const Pool& self) { return pair_of(self.window); },
          "The window (height, width), in pixels.")
      .def_prop_ro(
          "stride", [](const Pool& self) { return pair_of(self.normalised().stride); },
          "The distance between two windows (height, width), in pixels.")
      .def_prop_ro(
          "pad", [](const Pool& self) { return pair_of(self.pad); },
          "The padding above and below, and left and right, in pixels.")
      .def_prop_ro(
          "dil", [](const Pool& self) { return pair_of(self.dil); },
          "The distance between the pixels of a window (height, width).")
      .def_ro("ceil", &Pool::ceil, "Whether the number of windows is rounded up.");
  define_value(pool, &read_pool);

  auto keep = nb::class_<Keep>(module, "Keep", keep_document);
  keep.def(
          "__init__",
          [](Keep* self, nb::handle names) {
            new (self) Keep(read_keep(names_text("Keep: names", names)));
          },
          nb::arg("names") = "",
          nb::sig("def __init__(self, names: str | typing.Sequence[str] = '') -> None"))
      .def("__bool__", [](const Keep& self) { return self.any(); })
      .def_ro("pre", &Keep::pre, "Whether conv + bias is kept, or a neuron's charged membrane.")
      .def_ro("act", &Keep::act, "Whether the activation's output before the pool is kept.")
      .def_ro("idx", &Keep::idx, "Whether the position of each pooled maximum is kept.");
  define_value(keep, &read_keep);
}

}  // namespace convoy::python
