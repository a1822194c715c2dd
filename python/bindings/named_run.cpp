// Runs of a network on arrays by their names, and convoy.Port.
#include <fmt/core.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/gpu.hpp"
#include "core/printable.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "layout.hpp"
#include "network.hpp"
#include "stage.hpp"
#include "torch_tensor.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// An array of a run, under the name of its port.
struct Named {
  Named(std::string name_, nb::handle given)
      : name(std::move(name_)), shown(printable(name)), object(nb::borrow(given)) {}

  std::string name, shown;
  nb::object object;  // what the caller gave, or gets
  Array array;        // of what was given
  TensorView view;
  bool made = false;  // it is a new array
};
using All = std::vector<std::unique_ptr<Named>>;

const Port* port_of(const std::vector<Port>& ports, const std::string& name) {
  const auto found =
      std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  return found == ports.end() ? nullptr : &*found;
}

std::string name_of(const char* what, nb::handle key) {
  if (!nb::isinstance<nb::str>(key))
    raise(StatusCode::invalid_operand,
          fmt::format("{}: found {} as a name, expected the name of one as a str", what,
                      name_of_type(key)));
  return utf8_of(key);
}

/// One call, from the dicts to the results.
class NamedCall {
 public:
  NamedCall(const PythonNetwork& self, const nb::dict& inputs, nb::handle outputs,
            nb::handle stream)
      : self_(self), x_(named("inputs", inputs)) {
    const Named* const first = first_input();
    stream_ = stream_of(stream, first ? first->object : nb::none(), self.device);
    for (const auto& one : x_) {
      const bool channels_first = take(*one, self.network.inputs(), Access::read);
      if (one.get() == first) channels_first_ = channels_first;
    }
    if (first) type_ = first->array.type;
    add_outputs(outputs);
    check_unchanged();
  }

  nb::dict run() {
    std::vector<NamedInput> inputs;
    std::vector<NamedOutput> outputs;
    inputs.reserve(x_.size());
    outputs.reserve(y_.size());
    for (const auto& one : x_) inputs.push_back({one->name, one->view});
    for (const auto& one : y_) outputs.push_back({one->name, one->view});
    Status status;
    {
      const Released released;
      status = self_.network.run(inputs, outputs, stream_);
      // JAX knows nothing of the stream.
      if (status.ok() && self_.device.kind == DeviceKind::cuda && type_->maker == Maker::jax)
        gpu::synchronize(self_.device, stream_);
    }
    raise_unless_ok(status);
    nb::dict results;
    for (const auto& one : y_) {
      if (one->array.type && one->array.type->maker == Maker::torch) count_write(one->object);
      results[nb::cast(one->name)] =
          one->made ? delivered(*type_, one->object, one->view.device, stream_) : one->object;
    }
    return results;
  }

 private:
  /// Of a copy: taking an array may run code in Python, which may change the dict, and so may other
  /// threads during the run.
  static All named(const char* what, const nb::dict& given) {
    const auto kept = nb::steal<nb::dict>(PyDict_Copy(given.ptr()));
    if (!kept.is_valid()) throw nb::python_error();
    All all;
    for (auto [key, value] : kept)
      all.push_back(std::make_unique<Named>(name_of(what, key), value));
    return all;
  }

  /// The array of the network's first input. Results are made by its library. Null: it was not
  /// given, which the run refuses.
  const Named* first_input() const {
    const std::string& name = self_.network.inputs().front().name;
    for (const auto& one : x_)
      if (one->name == name) return one.get();
    return nullptr;
  }

  /// Whether it is a channels_last array, which calls its axes channels first.
  bool take(Named& one, const std::vector<Port>& ports, Access access) const {
    if (one.object.is_none())
      raise(StatusCode::invalid_operand,
            fmt::format("{}: None, expected an array{}", one.shown,
                        access == Access::write ? ". Leave it out if you do not want it" : ""));
    one.array.take(one.object, one.shown.c_str(), access, self_.device, stream_);
    const Port* const port = port_of(ports, one.name);
    const bool first = port && port->axes.size() == 3 &&
                       as_channels_last(one.array, one.shown.c_str(), Axes::automatic,
                                        {port->axes[0], port->axes[1], port->axes[2]}, false);
    one.view = one.array.view;
    return first;
  }

  void add_outputs(nb::handle outputs) {
    const std::vector<Port>& ports = self_.network.outputs();
    if (PyDict_Check(outputs.ptr())) {
      y_ = named("outputs", nb::borrow<nb::dict>(outputs));
      for (const auto& one : y_) take(*one, ports, Access::write);
      return;
    }
    std::vector<std::string> names;
    if (outputs.is_none()) {
      for (const Port& port : ports) names.push_back(port.name);
    } else if (nb::isinstance<nb::str>(outputs) || !nb::hasattr(outputs, "__iter__")) {
      raise(StatusCode::invalid_operand,
            fmt::format("outputs: {}, expected a dict of arrays, a list of names, or None",
                        name_of_type(outputs)));
    } else {
      for (nb::handle name : nb::borrow(outputs)) names.push_back(name_of("outputs", name));
    }
    for (const std::string& name : names) add_new(name, port_of(ports, name));
  }

  /// An output in a new array. No array is made if the run is about to refuse the name, or the
  /// first input, whose message is the better one.
  void add_new(const std::string& name, const Port* port) {
    y_.push_back(std::make_unique<Named>(name, nb::none()));
    if (!port) return;
    Named& one = *y_.back();
    const Port& input = self_.network.inputs().front();
    const TensorView* const x = type_ ? &first_input()->view : nullptr;
    const bool right = x && x->rank == static_cast<int>(input.axes.size()) + 1 &&
                       (x->device == self_.device || x->device == Device{});
    std::vector<Index> shape = port->axes;
    shape.insert(shape.begin(), right ? x->shape[0] : 0);
    if (port->steps > 0) shape.insert(shape.begin(), port->steps);
    one.view = TensorView(nullptr, port->dtype, shape);
    if (!right) return;
    NewArray made =
        new_array(*type_, port->dtype, shape, x->device, channels_first_ && port->axes.size() == 3);
    one.object = std::move(made.object);
    one.view = made.view;
    one.made = true;
  }

  /// Taking an array may have run code in Python that changed another one.
  void check_unchanged() const {
    const auto called = [](const All& all) {
      return std::any_of(all.begin(), all.end(),
                         [](const auto& one) { return one->array.called_python(); });
    };
    if (!called(x_) && !called(y_)) return;
    for (const All* all : {&x_, &y_})
      for (const auto& one : *all)
        if (!one->made && one->array.type)
          one->array.check_unchanged(one->object, one->shown.c_str());
  }

  const PythonNetwork& self_;
  Stream stream_;
  All x_, y_;
  const ArrayType* type_ = nullptr;  // of the first input; null: it is missing
  bool channels_first_ = false;
};

}  // namespace

nb::dict run_named(const PythonNetwork& self, const nb::dict& inputs, nb::handle outputs,
                   nb::handle stream) {
  return NamedCall(self, inputs, outputs, stream).run();
}

void define_port(nb::module_& module) {
  nb::class_<Port>(module, "Port",
                   "An input or an output of a network: an item of `Network.inputs` or "
                   "`Network.outputs`.")
      .def_ro("name", &Port::name, "The name, \"images\" for the input of a network.txt.")
      .def_prop_ro(
          "dtype", [](const Port& self) { return std::string(to_text(self.dtype)); },
          "The type of the elements: \"u8\", \"f32\", \"f16\" or \"bf16\".")
      .def_prop_ro(
          "axes",
          [](const Port& self) -> nb::typed<nb::tuple, int, nb::ellipsis> {
            return tuple_of(self.axes);
          },
          "The shape of one image, (H, W, C), or of one vector, (C,). An array has N in front.")
      .def_ro("steps", &Port::steps,
              "The number of time steps T of an array [T, N, ...]; 0: it has no such axis.")
      .def("__repr__", [](const Port& self) {
        std::string axes = self.steps > 0 ? fmt::format("{}, N", self.steps) : "N";
        for (const Index size : self.axes) axes += fmt::format(", {}", size);
        return fmt::format("<convoy.Port {}: {} [{}]>", printable(self.name), to_text(self.dtype),
                           axes);
      });
}

}  // namespace convoy::python
