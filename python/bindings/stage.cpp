#include "stage.hpp"

#include <fmt/core.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "convoy/tensor.hpp"
#include "errors.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// Text as it is, and whatever Python takes as an index (NumPy's integers too), as decimal digits.
std::string word_text(const char* key, nb::handle value) {
  if (nb::isinstance<nb::str>(value)) return utf8_of(value);
  if (!PyIndex_Check(value.ptr()) || PyBool_Check(value.ptr()))
    throw Error(
        fmt::format("Stage: {} is {}, expected text, an integer or, for sizes, a sequence of "
                    "integers",
                    key, name_of_type(value)));
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number) throw nb::python_error();
  return utf8_of(nb::str(number));
}

/// "3", "3x2" or "1x2x1x2" of an integer or a sequence of them; text is taken as it is.
std::string sizes_text(const char* key, nb::handle value) {
  if (nb::isinstance<nb::str>(value) || !nb::hasattr(value, "__iter__"))
    return word_text(key, value);
  std::string text;
  for (nb::handle size : value)
    text += fmt::format("{}{}", text.empty() ? "" : "x", word_text(key, size));
  return text;
}

/// The text of the keywords, which parse_stage then reads: one grammar, and its errors.
std::string text_of_keywords(const nb::dict& given) {
  std::string text;
  const auto add = [&](const char* before, const std::string& value, const char* behind = "") {
    text += before + value + behind;
  };
  const auto has = [&](const char* key) { return given.contains(key); };
  const auto word = [&](const char* key) { return sizes_text(key, given[key]); };
  if (has("dtype")) add("", word("dtype"), ":");
  for (const char* const axis : {"n", "h", "w", "c", "k", "r", "s"}) {
    if (has(axis))
      add(axis, word(axis));
    else if (axis[0] == 'n')
      text += "n1";
  }
  for (const char* const option : {"stride", "pad", "dil", "groups"})
    if (has(option)) add(option, word(option));
  if (has("layout")) {
    const std::string layout = word("layout");
    if (layout != "nhwc" && layout != "nchw")
      throw Error(fmt::format("layout: '{}', expected 'nhwc' or 'nchw'", layout));
    if (layout == "nchw") text += "nchw";
  }
  if (has("out")) add("out(", word("out"), ")");
  const auto flag = [&](const char* key) {
    if (!has(key)) return;
    const nb::object value = given[key];
    const int set = nb::isinstance<nb::str>(value) ? -1 : PyObject_IsTrue(value.ptr());
    if (set < 0) {
      PyErr_Clear();  // an array of several
      throw Error(fmt::format("Stage: {} is {}, expected True or False", key, name_of_type(value)));
    }
    if (set == 1) text += fmt::format("+{}", key);
  };
  flag("bias");
  flag("norm");
  if (has("act")) add("+", word("act"));
  flag("soft");
  if (has("t")) add("+t", word("t"));
  flag("hold");
  if (has("pool")) {
    const std::string pool = word("pool");
    add(pool.starts_with("max") ? "+" : "+max", pool);
  }
  if (has("keep")) {
    const nb::object keep = given["keep"];
    std::string kept;
    if (nb::isinstance<nb::str>(keep) || !nb::hasattr(keep, "__iter__"))
      kept = word_text("keep", keep);
    else
      for (nb::handle one : keep) kept += (kept.empty() ? "" : ",") + word_text("keep", one);
    add("+keep(", kept, ")");
  }
  flag("strict");
  return text;
}

constexpr const char* keyword_names[] = {"dtype",  "n",    "h",      "w",    "c",     "k",
                                         "r",      "s",    "stride", "pad",  "dil",   "groups",
                                         "layout", "out",  "bias",   "norm", "act",   "soft",
                                         "t",      "hold", "pool",   "keep", "strict"};

Stage stage_of_keywords(nb::handle text, const nb::kwargs& given) {
  if (!text.is_none()) {
    if (!given.empty()) throw Error("Stage: found a text and keywords, expected one of the two");
    return stage_of(text);
  }
  for (auto [key, value] : given) {
    const std::string name = utf8_of(key);
    bool known = false;
    std::string all;
    for (const char* const one : keyword_names) {
      known = known || name == one;
      all += fmt::format("{}{}", all.empty() ? "" : ", ", one);
    }
    if (!known)
      throw Error(fmt::format("Stage: found the keyword '{}', expected one of: {}", name, all));
  }
  return parse_stage(text_of_keywords(nb::borrow<nb::dict>(given)));
}

constexpr const char* stage_document =
    R"doc(A convolution and the parts that follow it: y = pool(act(conv(x, w) + bias)).

A stage says what to compute. A `Plan` chooses how. The repr of a stage is its text, equal stages
have equal hashes, and a stage can be pickled.

Args:
    text: The stage as a text (docs/use/stages.md), or another stage. None: keywords are given.
    **keywords: The words of the text: dtype, n, h, w, c, k, r, s, stride, pad, dil, groups, layout,
        out, bias, norm, act, soft, t, hold, pool, keep, strict. Sizes are integers or sequences of
        integers, such as stride=(2, 1). `act` is a text: "relu", "clip(0,1)", "lif(2,1)". `pool` is
        a window, 2 or (3, 2), or a text, "max3s2p1" or "3s2p1". `keep` has the names of the
        outputs to keep. n is 1 if you leave it out.

Raises:
    Error: The stage is not legal. The message lists every problem.

Example:
    >>> stage = convoy.Stage(n=8, h=32, c=64, k=128, r=3, pad=1, bias=True, act="relu", pool=2)
    >>> stage
    n8h32w32c64k128r3pad1+bias+relu+max2
    >>> stage == convoy.Stage("n8h32c64k128r3pad1+bias+relu+max2")
    True
    >>> stage.x_shape, stage.y_shape
    ((8, 32, 32, 64), (8, 16, 16, 128))
)doc";

}  // namespace

nb::tuple tuple_of(const std::vector<Index>& sizes) {
  const auto count = static_cast<Py_ssize_t>(sizes.size());
  nb::object tuple = nb::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i)
    PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(sizes[static_cast<std::size_t>(i)]));
  return nb::borrow<nb::tuple>(tuple);
}

Stage stage_of(nb::handle stage) {
  if (nb::isinstance<Stage>(stage)) return nb::cast<Stage>(stage);
  if (!nb::isinstance<nb::str>(stage))
    throw Error(
        fmt::format("stage: {}, expected a convoy.Stage or its text, as "
                    "\"n8h32c64k128r3pad1+bias+relu+max2\"",
                    name_of_type(stage)));
  return parse_stage(utf8_of(stage));
}

void define_stage(nb::module_& module) {
  nb::class_<Stage>(module, "Stage", stage_document)
      .def(
          "__init__",
          [](Stage* self, nb::handle text, const nb::kwargs& given) {
            new (self) Stage(stage_of_keywords(text, given));
          },
          nb::arg("text").none() = nb::none(), nb::arg("keywords"),
          nb::sig("def __init__(self, text: str | Stage | None = None, **keywords: typing.Any) -> "
                  "None"))
      .def_prop_ro(
          "text", [](const Stage& self) { return to_text(self); }, "The stage as a text.")
      .def_ro("n", &Stage::n, "The number of images.")
      .def_ro("h", &Stage::h, "The height of an input image, in pixels.")
      .def_ro("w", &Stage::w, "The width of an input image, in pixels.")
      .def_ro("c", &Stage::c, "The number of input channels.")
      .def_ro("k", &Stage::k, "The number of filters, which is the number of output channels.")
      .def_ro("r", &Stage::r, "The height of a filter, in pixels.")
      .def_ro("s", &Stage::s, "The width of a filter, in pixels.")
      .def_ro("groups", &Stage::groups, "The number of groups of channels; 1: no groups.")
      .def_ro("t", &Stage::t, "The number of time steps of a neuron; 1 without a neuron.")
      .def_ro("bias", &Stage::bias, "Whether the stage adds a bias.")
      .def_ro("norm", &Stage::norm, "Whether the stage scales and shifts its input per channel.")
      .def_ro("strict", &Stage::strict,
              "Whether only arithmetics that are exact on small integers are allowed.")
      .def_prop_ro(
          "stride", [](const Stage& self) { return nb::make_tuple(self.stride.h, self.stride.w); },
          "The stride (height, width), in pixels.")
      .def_prop_ro(
          "pad",
          [](const Stage& self) {
            return nb::make_tuple(self.pad.top, self.pad.left, self.pad.bottom, self.pad.right);
          },
          "The padding (top, left, bottom, right), in pixels.")
      .def_prop_ro(
          "dil", [](const Stage& self) { return nb::make_tuple(self.dil.h, self.dil.w); },
          "The dilation (height, width), in pixels.")
      .def_prop_ro(
          "layout", [](const Stage& self) { return self.layout == Layout::nhwc ? "nhwc" : "nchw"; },
          "The layout of x and y: \"nhwc\" or \"nchw\".")
      .def_prop_ro(
          "dtype", [](const Stage& self) { return std::string(to_text(self.dtype)); },
          "The type of x: \"f32\", \"f16\", \"bf16\" or \"u8\".")
      .def_prop_ro(
          "output_dtype",
          [](const Stage& self) { return std::string(to_text(self.output_dtype())); },
          "The type of y on the CPU. On a GPU a u8 stage gives f16, unless its text says out(f32).")
      .def_prop_ro(
          "x_shape", [](const Stage& self) { return tuple_of(x_shape(self)); },
          "The shape of x: ([T,] N, H, W, C), or (N, C, H, W) with the layout \"nchw\".")
      .def_prop_ro(
          "w_shape", [](const Stage& self) { return tuple_of(w_shape(self)); },
          "The shape of the weights: (K, R, S, C/groups).")
      .def_prop_ro(
          "y_shape", [](const Stage& self) { return tuple_of(y_shape(self)); },
          "The shape of y: ([T,] N, P', Q', K), or (N, K, P', Q') with the layout \"nchw\".")
      .def_prop_ro(
          "macs", [](const Stage& self) { return shapes_of(self).macs; },
          "The multiply-adds that a direct convolution does in one time step.")
      .def("__repr__", [](const Stage& self) { return to_text(self); })
      .def(
          "__eq__", [](const Stage& self, const Stage& other) { return self == other; },
          nb::is_operator())
      .def("__hash__", [](const Stage& self) { return static_cast<Py_hash_t>(hash_of(self) >> 1); })
      .def("__getstate__", [](const Stage& self) { return to_text(self); })
      .def("__setstate__",
           [](Stage& self, const std::string& text) { new (&self) Stage(parse_stage(text)); });
}

}  // namespace convoy::python
