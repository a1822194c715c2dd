// convoy.Network.
#include "convoy/network.hpp"

#include <fmt/core.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "core/gpu.hpp"
#include "core/printable.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "layout.hpp"
#include "network.hpp"
#include "network_documents.hpp"
#include "openmp.hpp"
#include "stage.hpp"
#include "torch_tensor.hpp"

namespace nb = nanobind;

namespace convoy::python {

NetworkOptions options_of(const std::string& device, int threads, Index batch, bool spike_kernels,
                          const std::string& weights, bool openmp) {
  if (weights != "f32" && weights != "f16")
    throw Error(fmt::format("weights: \"{}\", expected f32 (unchanged) or f16 (rounded to f16).",
                            printable(weights, 24)));
  return {.device = parse_device(device),
          .threads = threads,
          .batch = batch,
          .spike_kernels = spike_kernels,
          .weights = weights == "f16" ? DType::f16 : DType::f32,
          .caller_threads = openmp ? openmp_threads() : nullptr};
}

namespace {

PythonNetwork load(const std::string& folder, const NetworkOptions& options) {
  const Released released;
  return {Network(folder, options), options.device};
}

/// Whether a layer or a batch-norm has the parameter's name, up to its last dot.
bool reads(const NetworkText& network, const std::string& parameter) {
  const std::string owner = parameter.substr(0, parameter.rfind('.'));
  const std::string_view rest = std::string_view(parameter).substr(owner.size());
  const auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), rest) != names.end();
  };
  return std::any_of(network.layers.begin(), network.layers.end(), [&](const NetworkLayer& layer) {
    return (layer.name == owner && one_of({".weight", ".bias"})) ||
           (layer.batchnorm == owner &&
            one_of({".weight", ".bias", ".running_mean", ".running_var"}));
  });
}

PythonNetwork from_text(const std::string& text, const nb::dict& given, const std::string& name,
                        const std::string& device, int threads, Index batch, bool spike_kernels,
                        const std::string& weights, bool openmp) {
  const NetworkText network = parse_network(text, name);
  // A copy: taking a value may run code in Python, which may change the dict, and so may others
  // while the GIL is released. What is in the copy lives until the network is made.
  const auto kept = nb::steal<nb::dict>(PyDict_Copy(given.ptr()));
  if (!kept.is_valid()) throw nb::python_error();
  struct Taken {
    std::string name;
    nb::handle value;
    Array array;
    void check_unchanged() const { array.check_unchanged(value, name.c_str()); }
  };
  std::vector<std::unique_ptr<Taken>> all;
  for (auto [key, value] : kept) {
    const std::string parameter = utf8_of(nb::str(key));
    if (!reads(network, parameter)) continue;  // as the num_batches_tracked of a batch-norm
    all.push_back(std::make_unique<Taken>(parameter, value));
    all.back()->array.take(value, parameter.c_str(), Access::read);
    all.back()->array.hold(value);
  }
  NetworkParameters parameters;
  for (const auto& one : all) {
    one->check_unchanged();
    parameters[one->name] = one->array.view;
  }
  const NetworkOptions options = options_of(device, threads, batch, spike_kernels, weights, openmp);
  PythonNetwork made = [&]() -> PythonNetwork {
    const Released released;
    return {Network(network, parameters, options), options.device};
  }();
  for (const auto& one : all) one->check_unchanged();
  return made;
}

/// The input of a network that has one. `what` asks for it.
const Port& only_input(const PythonNetwork& self, const char* what) {
  const std::vector<Port>& inputs = self.network.inputs();
  if (inputs.size() != 1)
    raise(StatusCode::invalid_operand,
          fmt::format("{}: this network has {} inputs, expected one. Look at Network.inputs, and "
                      "call run with a dict of arrays.",
                      what, inputs.size()));
  return inputs.front();
}

void take_images(const PythonNetwork& self, Array& array, nb::handle images, Stream stream) {
  if (images.is_none()) raise(StatusCode::invalid_operand, "images: None, expected an array");
  const std::vector<Index>& axes = only_input(self, "images").axes;
  array.take(images, "images", Access::read, self.device, stream);
  if (axes.size() == 3)
    as_channels_last(array, "images", Axes::automatic, {axes[0], axes[1], axes[2]}, false);
}

/// The images of a run, and where it goes.
struct Images {
  Images(const PythonNetwork& self, nb::handle images, nb::handle stream_given)
      : object(images), stream(stream_of(stream_given, images, self.device)) {
    take_images(self, array, images, stream);
  }
  nb::handle object;
  Stream stream;
  Array array;
};

void compute(const PythonNetwork& self, const Images& images, const TensorView& logits,
             const TensorView& labels) {
  Status status;
  {
    const Released released;
    status = self.network.run(images.array.view, logits, labels, images.stream);
    // JAX knows nothing of the stream.
    if (status.ok() && self.device.kind == DeviceKind::cuda &&
        images.array.type->maker == Maker::jax)
      gpu::synchronize(self.device, images.stream);
  }
  raise_unless_ok(status);
}

void run(const PythonNetwork& self, nb::handle images, nb::handle logits, nb::handle labels,
         nb::handle stream) {
  const Images taken(self, images, stream);
  Array logit_array, label_array;
  logit_array.take(logits, "logits", Access::write, self.device, taken.stream);
  label_array.take(labels, "labels", Access::write, self.device, taken.stream);
  if (logit_array.called_python() || label_array.called_python() || taken.array.called_python()) {
    taken.array.check_unchanged(images, "images");
    logit_array.check_unchanged(logits, "logits");
    label_array.check_unchanged(labels, "labels");
  }
  compute(self, taken, logit_array.view, label_array.view);
  for (const auto& [array, object] : {std::pair(&logit_array, logits), {&label_array, labels}})
    if (array->type && array->type->maker == Maker::torch) count_write(object);
}

/// A new array beside the images, filled by a run.
nb::object filled(const PythonNetwork& self, nb::handle images, bool logits, nb::handle stream) {
  const Images taken(self, images, stream);
  const TensorView& view = taken.array.view;
  std::vector<Index> shape{view.rank > 0 ? view.shape[0] : 0};
  if (logits) shape.push_back(self.network.classes());
  const ArrayType& type = *taken.array.type;
  NewArray made = new_array(type, logits ? DType::f32 : DType::i32, shape, view.device);
  compute(self, taken, logits ? made.view : TensorView(), logits ? TensorView() : made.view);
  return delivered(type, std::move(made.object), view.device, taken.stream);
}

std::vector<double> profile(const PythonNetwork& self, nb::handle images) {
  Array array;
  take_images(self, array, images, {});
  std::vector<double> seconds;
  const Released released;
  const Status status = self.network.profile(array.view, seconds);
  const nb::gil_scoped_acquire acquired;
  raise_unless_ok(status);
  return seconds;
}

std::string names_of(const std::vector<Port>& ports) {
  std::string all;
  for (const Port& port : ports) all += (all.empty() ? "" : ", ") + printable(port.name);
  return all;
}

std::string repr_of(const PythonNetwork& self) {
  const Network& network = self.network;
  const Port& in = network.inputs().front();
  const bool pictures = network.inputs().size() == 1 && network.outputs().size() == 1 &&
                        in.axes.size() == 3 && network.outputs().front().steps == 0;
  if (!pictures)
    return fmt::format("<convoy.Network of {} to {} on {}>", names_of(network.inputs()),
                       names_of(network.outputs()), to_text(self.device));
  return fmt::format("<convoy.Network {}:h{}w{}c{} to {} classes on {}>", to_text(in.dtype),
                     in.axes[0], in.axes[1], in.axes[2], network.classes(), to_text(self.device));
}

}  // namespace

void define_network(nb::module_& module) {
  define_port(module);
  nb::class_<LayerReport>(module, "LayerReport",
                          "How a network runs one layer: an item of `Network.layers`.")
      .def_ro("name", &LayerReport::name,
              "The layer's name in network.txt, or as GraphBuilder made it.")
      .def_ro("stage", &LayerReport::stage, "The layer's stage for one image, as a text.")
      .def_ro("kernel", &LayerReport::kernel, "The name of the kernel that runs the layer.")
      .def_ro("fusion", &LayerReport::fusion,
              "Whether the layer runs in one kernel with the layers after it, and why.")
      .def_ro("parameters", &LayerReport::parameters,
              "The number of weights and biases, after a batch-norm is folded in.")
      .def_ro("macs", &LayerReport::macs, "The multiply-adds for one image, all time steps.")
      .def("__repr__", [](const LayerReport& self) {
        return fmt::format("<{}: {} by {}>", printable(self.name), self.stage, self.kernel);
      });

  const auto none = nb::none();
  auto network = nb::class_<PythonNetwork>(module, "Network", document_of_network);
  refuse_copies(
      network,
      "a convoy.Network can be neither copied nor pickled: it holds choices and packed weights for "
      "one machine. Make it again from its folder, convoy.Network(folder), or "
      "from its text and parameters, convoy.Network.from_text(text, parameters). Pickle "
      "the folder's path, or the text and the parameters.")
      .def(
          "__init__",
          [](PythonNetwork* self, nb::handle folder, const std::string& device, int threads,
             Index batch, bool spike_kernels, const std::string& weights, bool openmp) {
            // Bytes: a name need not be UTF-8.
            const auto path =
                nb::cast<nb::bytes>(nb::module_::import_("os").attr("fsencode")(folder));
            if (std::string_view(path.c_str(), path.size()).find('\0') != std::string_view::npos)
              throw Error(
                  fmt::format("model: {} has a NUL character, which no path may have; expected the "
                              "folder of network.txt",
                              utf8_of(nb::repr(folder))));
            new (self) PythonNetwork(
                load(std::string(path.c_str(), path.size()),
                     options_of(device, threads, batch, spike_kernels, weights, openmp)));
          },
          nb::arg("folder"), nb::kw_only(), nb::arg("device") = "cpu", nb::arg("threads") = 0,
          nb::arg("batch") = 0, nb::arg("spike_kernels") = true, nb::arg("weights") = "f32",
          nb::arg("openmp") = false, nb::sig(signature_of_network))
      .def_static("from_text", &from_text, nb::arg("text"), nb::arg("parameters"), nb::kw_only(),
                  nb::arg("name") = "network", nb::arg("device") = "cpu", nb::arg("threads") = 0,
                  nb::arg("batch") = 0, nb::arg("spike_kernels") = true, nb::arg("weights") = "f32",
                  nb::arg("openmp") = false, nb::sig(signature_of_from_text), document_of_from_text)
      .def("__repr__", &repr_of)
      .def("run", &run_named, nb::arg("inputs"), nb::arg("outputs").none() = none, nb::kw_only(),
           nb::arg("stream").none() = none, nb::sig(signature_of_named_run), document_of_named_run)
      .def("run", &run, nb::arg("images").none(), nb::kw_only(), nb::arg("logits").none() = none,
           nb::arg("labels").none() = none, nb::arg("stream").none() = none,
           nb::sig(signature_of_network_run), document_of_network_run)
      .def(
          "__call__",
          [](const PythonNetwork& self, nb::handle images, nb::handle stream) {
            return filled(self, images, true, stream);
          },
          nb::arg("images").none(), nb::kw_only(), nb::arg("stream").none() = none,
          nb::sig(
              "def __call__(self, images: typing.Any, *, stream: typing.Any = None) -> typing.Any"),
          document_of_network_call)
      .def(
          "labels",
          [](const PythonNetwork& self, nb::handle images, nb::handle stream) {
            return filled(self, images, false, stream);
          },
          nb::arg("images").none(), nb::kw_only(), nb::arg("stream").none() = none,
          nb::sig(
              "def labels(self, images: typing.Any, *, stream: typing.Any = None) -> typing.Any"),
          document_of_labels)
      .def(
          "warm",
          [](const PythonNetwork& self, Index n) {
            const Released released;
            self.network.warm(n);
          },
          nb::arg("n"), document_of_warm)
      .def("profile", &profile, nb::arg("images").none(), document_of_profile)
      .def_prop_ro(
          "layers", [](const PythonNetwork& self) { return self.network.layers(); },
          "A list of one `LayerReport` per layer, without `flatten`.")
      .def_prop_ro(
          "inputs", [](const PythonNetwork& self) { return self.network.inputs(); },
          "A list of one `Port` per input, in order.")
      .def_prop_ro(
          "outputs", [](const PythonNetwork& self) { return self.network.outputs(); },
          "A list of one `Port` per output, in order.")
      .def_prop_ro(
          "classes", [](const PythonNetwork& self) { return self.network.classes(); },
          "The number of logits for one image: the values of the first output.")
      .def_prop_ro(
          "parameters", [](const PythonNetwork& self) { return self.network.parameters(); },
          "The number of weights and biases of all layers.")
      .def_prop_ro(
          "threads", [](const PythonNetwork& self) { return self.network.threads(); },
          "The largest number of CPU threads that a run may use.")
      .def_prop_ro(
          "device", [](const PythonNetwork& self) { return to_text(self.device); },
          "The device, for example \"cpu\", \"cuda\" or \"cuda:1\".")
      .def_prop_ro(
          "image_shape",
          [](const PythonNetwork& self) { return tuple_of(only_input(self, "image_shape").axes); },
          "The shape of one image: (height, width, channels), or (channels,) of a vector. Raises "
          "InvalidOperand if the network has several inputs.")
      .def_prop_ro(
          "dtype",
          [](const PythonNetwork& self) {
            return std::string(to_text(only_input(self, "dtype").dtype));
          },
          "The type of the images: \"u8\", \"f32\", \"f16\" or \"bf16\". Raises InvalidOperand if "
          "the "
          "network has several inputs.");
}

}  // namespace convoy::python
