#include "stage.hpp"

#include <fmt/core.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>

#include "convoy/tensor.hpp"
#include "errors.hpp"
#include "stage_keywords.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

constexpr const char* stage_document =
    R"doc(A convolution and the parts that follow it: y = pool(act(conv(x, w) + bias)).

A stage says what to compute. A `Plan` chooses how. Each part is an attribute. A stage is
immutable: `replace` makes a changed one. The repr of a stage is its text, equal stages have equal
hashes, and a stage can be pickled.

Args:
    text: The stage as a text (docs/use/stages.md), or another stage. None: keywords are given.
    **keywords: The attributes' values: dtype, n, h, w, c, k, r, s, stride, pad, dil, groups,
        layout, out, bias, norm, act, soft, t, hold, pool, keep, strict. Sizes are integers or
        sequences of integers, such as stride=(2, 1). `act` is an `Activation` or its text: "relu",
        "clip(0,1)", "lif(2,1)". `pool` is a `Pool`, a window, 2 or (3, 2), or a text, "max3s2p1".
        `keep` is a `Keep` or the names of the outputs to keep. n is 1 if you leave it out.

Raises:
    Error: The stage is not legal. The message lists every problem.

Example:
    >>> stage = convoy.Stage(n=8, h=32, c=64, k=128, r=3, pad=1, bias=True, act="relu", pool=2)
    >>> stage
    n8h32w32c64k128r3pad1+bias+relu+max2
    >>> stage == convoy.Stage("n8h32c64k128r3pad1+bias+relu+max2")
    True
    >>> stage.act.kind, stage.pool.window, stage.pad
    ('relu', (2, 2), (1, 1, 1, 1))
    >>> stage.x_shape, stage.y_shape
    ((8, 32, 32, 64), (8, 16, 16, 128))
)doc";

constexpr const char* replace_document =
    R"doc(Returns the stage with other values for these keywords.

All other attributes keep their values, also w and s if you give h and r.

Args:
    **keywords: Values as the constructor takes them.

Returns:
    The changed `Stage`.

Raises:
    Error: A keyword is unknown, or the changed stage is not legal.

Example:
    >>> convoy.Stage("n8h32c64k128r3pad1+relu").replace(n=1, act="clip(0,1)", pool=2)
    n1h32w32c64k128r3pad1+clip(0,1)+max2
)doc";

constexpr const char* keywords_document =
    R"doc(Returns the keywords that a text gives. Axes may be missing, as in a line of network.txt.

Args:
    stage: The text, or a stage.

Returns:
    A dict: the axes that the text has, and every other keyword that differs from its default.

Raises:
    Error: The text has a mistake.

Example:
    >>> parts = convoy.Stage.keywords_of("k8r5+bias+relu")
    >>> parts
    {'k': 8, 'r': 5, 'bias': True, 'act': relu}
    >>> convoy.Stage(h=28, c=1, **parts)
    n1h28w28c1k8r5+bias+relu
)doc";

constexpr const char* layer_text_document =
    R"doc(Returns the stage as a line of network.txt has it, after the layer's name.

It has no type, n, h, w, c, t and hold, because they follow from the lines before it.

Args:
    linear: The layer comes after `flatten`, where filters have no r and s.

Returns:
    The text.

Example:
    >>> convoy.Stage("n1h28c1k8r5+bias+if(1)+t2+hold+max2").layer_text()
    'k8r5+bias+if(1)+max2'
)doc";

using Pair = nb::typed<nb::tuple, int, int>;

Pair pair(Extent extent) {
  return nb::make_tuple(extent.h, extent.w);
}

}  // namespace

nb::tuple tuple_of(const std::vector<Index>& sizes) {
  const auto count = static_cast<Py_ssize_t>(sizes.size());
  nb::object tuple = nb::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i)
    PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(sizes[static_cast<std::size_t>(i)]));
  return nb::borrow<nb::tuple>(tuple);
}

std::string text_of(nb::handle stage) {
  if (nb::isinstance<Stage>(stage)) return to_text(nb::cast<const Stage&>(stage));
  if (nb::isinstance<nb::str>(stage)) return utf8_of(stage);
  throw Error(
      fmt::format("stage: {}, expected a convoy.Stage or its text, as "
                  "\"n8h32c64k128r3pad1+bias+relu+max2\"",
                  name_of_type(stage)));
}

Stage stage_of(nb::handle stage) {
  if (nb::isinstance<Stage>(stage)) return nb::cast<Stage>(stage);
  return parse_stage(text_of(stage));
}

std::string layer_text(const Stage& stage, bool linear) {
  Stage bare = stage;
  bare.dtype = DType::f32;
  bare.n = bare.h = bare.w = bare.c = bare.t = 1;
  bare.hold = false;
  constexpr std::string_view before = "n1h1w1c1";
  const std::string text = to_text(bare).substr(before.size());
  if (!linear) return text;
  const std::string filters = fmt::format("k{}", stage.k);
  return filters + text.substr(fmt::format("{}r{}", filters, stage.r).size());
}

void define_stage(nb::module_& module) {
  nb::class_<Stage>(module, "Stage", stage_document)
      .def(
          "__init__",
          [](Stage* self, nb::handle text, const nb::kwargs& given) {
            if (!text.is_none() && !given.empty())
              throw Error("Stage: found a text and keywords, expected one of the two");
            new (self) Stage(text.is_none() ? stage_of_keywords(given) : stage_of(text));
          },
          nb::arg("text").none() = nb::none(), nb::arg("keywords"),
          nb::sig("def __init__(self, text: str | Stage | None = None, **keywords: typing.Any) -> "
                  "None"))
      .def_static("keywords_of", &keywords_of, nb::arg("stage"),
                  nb::sig("def keywords_of(stage: str | Stage) -> dict[str, typing.Any]"),
                  keywords_document)
      .def(
          "replace",
          [](const Stage& self, const nb::kwargs& changes) { return replaced(self, changes); },
          nb::arg("keywords"), nb::sig("def replace(self, **keywords: typing.Any) -> Stage"),
          replace_document)
      .def("layer_text", &layer_text, nb::arg("linear") = false, layer_text_document)
      .def_prop_ro(
          "text", [](const Stage& self) { return to_text(self); }, "The stage as a text.")
      .def_prop_ro(
          "dtype", [](const Stage& self) { return std::string(to_text(self.dtype)); },
          "The type of x: \"f32\", \"f16\", \"bf16\" or \"u8\".")
      .def_ro("n", &Stage::n, "The number of images.")
      .def_ro("h", &Stage::h, "The height of an input image, in pixels.")
      .def_ro("w", &Stage::w, "The width of an input image, in pixels.")
      .def_ro("c", &Stage::c, "The number of input channels.")
      .def_ro("k", &Stage::k, "The number of filters, which is the number of output channels.")
      .def_ro("r", &Stage::r, "The height of a filter, in pixels.")
      .def_ro("s", &Stage::s, "The width of a filter, in pixels.")
      .def_prop_ro(
          "stride", [](const Stage& self) { return pair(self.stride); },
          "The stride (height, width), in pixels.")
      .def_prop_ro(
          "pad",
          [](const Stage& self) -> nb::typed<nb::tuple, int, int, int, int> {
            return nb::make_tuple(self.pad.top, self.pad.left, self.pad.bottom, self.pad.right);
          },
          "The padding (top, left, bottom, right), in pixels.")
      .def_prop_ro(
          "dil", [](const Stage& self) { return pair(self.dil); },
          "The dilation (height, width), in pixels.")
      .def_ro("groups", &Stage::groups, "The number of groups of channels; 1: no groups.")
      .def_prop_ro(
          "layout", [](const Stage& self) { return self.layout == Layout::nhwc ? "nhwc" : "nchw"; },
          "The layout of x and y: \"nhwc\" or \"nchw\".")
      .def_prop_ro(
          "out",
          [](const Stage& self) -> std::optional<std::string> {
            if (!self.out) return {};
            return std::string(to_text(*self.out));
          },
          "The type of y, if it is not the one that `dtype` implies; None otherwise.")
      .def_ro("bias", &Stage::bias, "Whether the stage adds a bias.")
      .def_ro("norm", &Stage::norm, "Whether the stage scales and shifts its input per channel.")
      .def_prop_ro(
          "act", [](const Stage& self) { return self.act; }, "The `Activation` or neuron.")
      .def_ro("soft", &Stage::soft,
              "Whether a neuron's reset subtracts the threshold. False: it sets 0.")
      .def_ro("t", &Stage::t, "The number of time steps of a neuron; 1 without a neuron.")
      .def_ro("hold", &Stage::hold,
              "Whether each time step reads the same x, which then has no axis T.")
      .def_prop_ro(
          "pool", [](const Stage& self) { return self.pool; }, "The max-`Pool`, or None.")
      .def_prop_ro(
          "keep", [](const Stage& self) { return self.keep; }, "The second outputs to `Keep`.")
      .def_ro("strict", &Stage::strict,
              "Whether only arithmetics that are exact on small integers are allowed.")
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
          "p", [](const Stage& self) { return shapes_of(self).p; },
          "P, the height of the convolution's output, before the pool.")
      .def_prop_ro(
          "q", [](const Stage& self) { return shapes_of(self).q; },
          "Q, the width of the convolution's output, before the pool.")
      .def_prop_ro(
          "out_h", [](const Stage& self) { return shapes_of(self).out_h; },
          "P', the height of y, after the pool.")
      .def_prop_ro(
          "out_w", [](const Stage& self) { return shapes_of(self).out_w; },
          "Q', the width of y, after the pool.")
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
