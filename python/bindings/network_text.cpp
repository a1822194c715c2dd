// convoy.NetworkText and convoy.NetworkLayer: the content of a network.txt as objects, and back to
// text.
#include <fmt/core.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convoy/network.hpp"
#include "errors.hpp"
#include "stage.hpp"
#include "stage_values.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

constexpr const char* network_text_document =
    R"doc(A network without weights: the content of a network.txt (docs/use/model-folders.md).

It is immutable. `str` gives the canonical text, without comments; equal networks have equal texts
and equal hashes.

Args:
    text: The content of the file.
    name: The name that error messages use for the text.

Raises:
    Error: The text has a mistake. The message names the line.

Example:
    >>> text = convoy.NetworkText("input u8:h28c1\nconv1 k8r5+relu+max2\nflatten\nfc1 k10+bias\n")
    >>> for layer in text.layers:
    ...     print(layer.name, layer.stage)
    conv1 n1h28w28c1k8r5+relu+max2
    flatten None
    fc1 n1h1w1c1152k10r1+bias
    >>> convoy.NetworkText(str(text)) == text
    True
)doc";

constexpr const char* network_layer_document =
    R"doc(A line of a network.txt: an item of `NetworkText.layers`.

`str` gives the canonical line. `stage` has the whole stage of one image: its sizes follow from the
lines before it.
)doc";

struct Layer {
  NetworkLayer layer;
  bool linear = false;  // it reads a vector
};

std::string line_of(const Layer& line) {
  const NetworkLayer& layer = line.layer;
  if (layer.flatten) return "flatten";
  std::string text = fmt::format("{} {}", layer.name, layer_text(layer.stage, line.linear));
  if (!layer.batchnorm.empty()) text += fmt::format(" batchnorm({})", layer.batchnorm);
  for (const std::string& name : layer.from)
    text += (&name == layer.from.data() ? " from(" : ",") + name;
  return text + (layer.from.empty() ? "" : ")");
}

/// The layers, and which are linear: those that read a vector, from "flatten" on.
std::vector<Layer> layers_of(const NetworkText& network) {
  std::vector<Layer> layers;
  std::map<std::string, bool> gives_vector;  // by name
  bool vector = false;                       // the output of the line before
  for (const NetworkLayer& layer : network.layers) {
    if (layer.flatten)
      vector = true;
    else if (!layer.from.empty())
      vector = gives_vector[layer.from.front()];
    if (!layer.flatten) gives_vector[layer.name] = vector;
    layers.push_back({layer, vector && !layer.flatten});
  }
  return layers;
}

nb::tuple decimals(const std::vector<float>& values) {
  nb::list numbers;
  for (const float value : values) numbers.append(decimal(value));
  return nb::tuple(numbers);
}

/// " mean(0.5,0.25)", or nothing if there are no numbers.
std::string word_of(const char* word, const std::vector<float>& values) {
  std::string text;
  for (const float value : values)
    text += (text.empty() ? fmt::format(" {}(", word) : ",") + fmt::format("{}", value);
  return text + (text.empty() ? "" : ")");
}

std::string text_of_network(const NetworkText& network) {
  std::string text =
      fmt::format("input {}:h{}w{}c{}{}{}\n", to_text(network.dtype), network.h, network.w,
                  network.c, word_of("mean", network.mean), word_of("std", network.std));
  if (network.steps > 1) text += fmt::format("steps {}\n", network.steps);
  for (const Layer& layer : layers_of(network)) text += line_of(layer) + "\n";
  return text;
}

NetworkText parse(nb::handle text, const std::string& name) {
  if (!nb::isinstance<nb::str>(text))
    throw Error(fmt::format("text: {}, expected the content of a network.txt as a text",
                            name_of_type(text)));
  return parse_network(utf8_of(text), name);
}

}  // namespace

void define_network_text(nb::module_& module) {
  nb::class_<Layer>(module, "NetworkLayer", network_layer_document)
      .def_prop_ro(
          "name", [](const Layer& self) { return self.layer.name; },
          "The layer's name; \"flatten\" of a line `flatten`.")
      .def_prop_ro(
          "stage",
          [](const Layer& self) -> std::optional<Stage> {
            if (self.layer.flatten) return {};
            return self.layer.stage;
          },
          "The layer's `Stage` for one image; None of a line `flatten`.")
      .def_prop_ro(
          "flatten", [](const Layer& self) { return self.layer.flatten; },
          "Whether the line is `flatten`: [H, W, C] becomes a vector in the order (C, H, W).")
      .def_ro("linear", &Layer::linear,
              "Whether the layer reads a vector; its weights are then [K, C].")
      .def_prop_ro(
          "batchnorm", [](const Layer& self) { return self.layer.batchnorm; },
          "The prefix of the parameters of a batch-norm; \"\" without one.")
      .def_prop_ro(
          "from_",
          [](const Layer& self) -> nb::typed<nb::tuple, nb::str, nb::ellipsis> {
            nb::list names;
            for (const std::string& name : self.layer.from) names.append(nb::cast(name));
            return nb::tuple(names);
          },
          "The names of the layers that it reads; empty: the line before it.")
      .def("__str__", &line_of)
      .def("__repr__", [](const Layer& self) {
        return fmt::format("<convoy.NetworkLayer {}>", line_of(self));
      });

  nb::class_<NetworkText>(module, "NetworkText", network_text_document)
      .def(
          "__init__",
          [](NetworkText* self, nb::handle text, const std::string& name) {
            new (self) NetworkText(parse(text, name));
          },
          nb::arg("text"), nb::arg("name") = "network",
          nb::sig("def __init__(self, text: str, name: str = 'network') -> None"))
      .def_prop_ro(
          "dtype", [](const NetworkText& self) { return std::string(to_text(self.dtype)); },
          "The type of the images: \"u8\", \"f32\", \"f16\" or \"bf16\".")
      .def_ro("h", &NetworkText::h, "The height of the images, in pixels.")
      .def_ro("w", &NetworkText::w, "The width of the images, in pixels.")
      .def_ro("c", &NetworkText::c, "The number of channels of the images.")
      .def_prop_ro(
          "mean",
          [](const NetworkText& self) -> nb::typed<nb::tuple, float, nb::ellipsis> {
            return decimals(self.mean);
          },
          "The mean of the normalisation: one number, one per channel, or empty.")
      .def_prop_ro(
          "std",
          [](const NetworkText& self) -> nb::typed<nb::tuple, float, nb::ellipsis> {
            return decimals(self.std);
          },
          "The divisor of the normalisation: one number, one per channel, or empty.")
      .def_ro("steps", &NetworkText::steps, "The number of time steps.")
      .def_prop_ro(
          "layers",
          [](const NetworkText& self) -> nb::typed<nb::tuple, Layer, nb::ellipsis> {
            nb::list layers;
            for (const Layer& layer : layers_of(self)) layers.append(nb::cast(layer));
            return nb::tuple(layers);
          },
          "A tuple with one `NetworkLayer` per layer, and one per line `flatten`.")
      .def("__str__", &text_of_network)
      .def("__repr__",
           [](const NetworkText& self) {
             return fmt::format("<convoy.NetworkText {}:h{}w{}c{}, {} layers>", to_text(self.dtype),
                                self.h, self.w, self.c, self.layers.size());
           })
      .def(
          "__eq__",
          [](const NetworkText& self, const NetworkText& other) {
            return text_of_network(self) == text_of_network(other);
          },
          nb::is_operator())
      .def("__hash__",
           [](const NetworkText& self) { return nb::hash(nb::cast(text_of_network(self))); })
      .def("__getstate__", &text_of_network)
      .def("__setstate__", [](NetworkText& self, const std::string& text) {
        new (&self) NetworkText(parse_network(text, "network"));
      });
}

}  // namespace convoy::python
