// convoy.GraphBuilder.
#include "convoy/graph.hpp"

#include <fmt/core.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/printable.hpp"
#include "core/stage_text.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "graph_documents.hpp"
#include "network.hpp"
#include "plan.hpp"
#include "stage_values.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

using Value = GraphBuilder::Value;

/// A builder that another thread may not change while it makes a network, for which the GIL is
/// released.
class PythonBuilder {
 public:
  explicit PythonBuilder(Index steps) : builder_(steps) {}

  GraphBuilder& now() {
    if (building_)
      raise(StatusCode::busy,
            "this GraphBuilder is making a network in another thread, expected one call at a time. "
            "Wait until `build` has returned.");
    return builder_;
  }

  Network build(const NetworkOptions& options) {
    const GraphBuilder& builder = now();
    struct Building {
      explicit Building(bool& flag_) : flag(flag_) { flag = true; }
      Building(const Building&) = delete;
      Building& operator=(const Building&) = delete;
      ~Building() { flag = false; }
      bool& flag;
    } const building(building_);
    const Released released;
    return builder.build(options);
  }

 private:
  GraphBuilder builder_;
  bool building_ = false;  // the GIL guards it
};

/// Parameters of an operator, taken together: taking one may run code in Python that changes
/// another.
class Parameters {
 public:
  ConstTensorView add(const char* name, nb::handle given, const std::string& layout = "krsc") {
    if (given.is_none())
      raise(StatusCode::invalid_operand, fmt::format("{}: None, expected an array", name));
    Taken& one = *all_.emplace_back(std::make_unique<Taken>());
    one.name = name;
    one.object = given;
    if (layout == "krsc") {
      one.array.take(given, name, Access::read);
      one.array.hold(given);
    } else {
      take_weights(one.array, given, layout, {}, {});
    }
    return one.array.view;
  }
  /// A bias; None: an empty view.
  ConstTensorView add_bias(nb::handle given) {
    return given.is_none() ? ConstTensorView() : add("bias", given);
  }
  void check_unchanged() const {
    for (const auto& one : all_) one->array.check_unchanged(one->object, one->name);
  }

 private:
  struct Taken {
    const char* name = "";
    nb::handle object;
    Array array;
  };
  std::vector<std::unique_ptr<Taken>> all_;
};

/// The part of a stage that riders or options give, read by the grammar of stages.
Stage read(const std::string& text) {
  GivenAxes given;
  return parse_stage_parts(text, given);
}

DType dtype_of(const std::string& text) {
  for (const DType dtype : {DType::u8, DType::f32, DType::f16, DType::bf16})
    if (text == to_text(dtype)) return dtype;
  throw Error(fmt::format("dtype: '{}', expected u8, f32, f16 or bf16", printable(text, 24)));
}

/// A number, or a sequence of them.
std::vector<float> numbers_of(const char* what, nb::handle given) {
  std::vector<float> numbers;
  const auto add = [&](nb::handle number) {
    const double value = nb::isinstance<nb::str>(number) ? -1 : PyFloat_AsDouble(number.ptr());
    if (nb::isinstance<nb::str>(number) || (value == -1 && PyErr_Occurred())) {
      PyErr_Clear();
      throw Error(fmt::format("{}: found {}, expected a number or a sequence of numbers", what,
                              name_of_type(number)));
    }
    numbers.push_back(static_cast<float>(value));
  };
  if (nb::isinstance<nb::str>(given) || !nb::hasattr(given, "__iter__"))
    add(given);
  else
    for (nb::handle number : nb::borrow(given)) add(number);
  return numbers;
}

Value convolution(PythonBuilder& self, Value x, nb::handle weights, nb::handle bias,
                  nb::handle stride, nb::handle pad, nb::handle dil, nb::handle groups, bool strict,
                  const std::string& layout, const std::string& name) {
  std::string text = "stride" + sizes_text("convolution: stride", stride);
  text += "pad" + sizes_text("convolution: pad", pad);
  text += "dil" + sizes_text("convolution: dil", dil);
  text += "groups" + word_text("convolution: groups", groups);
  const Stage stage = read(text);
  Parameters parameters;
  const ConstTensorView w = parameters.add("weights", weights, layout),
                        b = parameters.add_bias(bias);
  parameters.check_unchanged();
  return self.now().convolution(x, w, b,
                                {.stride = stage.stride,
                                 .pad = stage.pad,
                                 .dil = stage.dil,
                                 .groups = stage.groups,
                                 .strict = strict},
                                name);
}

Value linear(PythonBuilder& self, Value x, nb::handle weights, nb::handle bias,
             const std::string& name) {
  Parameters parameters;
  const ConstTensorView w = parameters.add("weights", weights), b = parameters.add_bias(bias);
  parameters.check_unchanged();
  return self.now().linear(x, w, b, name);
}

Value batch_norm(PythonBuilder& self, Value x, nb::handle gamma, nb::handle beta, nb::handle mean,
                 nb::handle variance, float eps, const std::string& name) {
  Parameters parameters;
  const ConstTensorView g = parameters.add("gamma", gamma), b = parameters.add("beta", beta),
                        m = parameters.add("mean", mean), v = parameters.add("variance", variance);
  parameters.check_unchanged();
  return self.now().batch_norm(x, g, b, m, v, eps, name);
}

Value activation(PythonBuilder& self, Value x, nb::handle act, bool soft, const std::string& name) {
  if (act.is_none()) throw Error("act: None, expected an Activation or its text, as \"relu\"");
  return self.now().activation(x, read(act_text("act", act)).act, soft, name);
}

Value max_pool(PythonBuilder& self, Value x, nb::handle pool, const std::string& name) {
  if (pool.is_none())
    throw Error("pool: None, expected a Pool, a window or its text, as \"3s2p1\"");
  return self.now().max_pool(x, *read(pool_text("pool", pool)).pool, name);
}

PythonNetwork build(PythonBuilder& self, const std::string& device, int threads, Index batch,
                    bool spike_kernels, const std::string& weights, bool openmp) {
  const NetworkOptions options = options_of(device, threads, batch, spike_kernels, weights, openmp);
  return {self.build(options), options.device};
}

}  // namespace

void define_graph(nb::module_& module) {
  const auto none = nb::none();
  auto builder = nb::class_<PythonBuilder>(module, "GraphBuilder", document_of_graph_builder);
  nb::class_<Value>(builder, "Value",
                    "An input, or the result of an operator. It belongs to the builder that "
                    "returned it.")
      .def("__repr__", [](const Value& self) {
        return fmt::format("<convoy.GraphBuilder.Value {}>", self.id);
      });
  refuse_copies(builder,
                "a convoy.GraphBuilder can be neither copied nor pickled. Call the same functions "
                "on a new one.")
      .def(nb::init<Index>(), nb::arg("steps") = 1)
      .def(
          "input",
          [](PythonBuilder& self, const std::string& name, const std::string& dtype,
             const std::vector<Index>& axes) {
            return self.now().input(name, dtype_of(dtype), axes);
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("axes"), document_of_graph_input)
      .def(
          "normalise",
          [](PythonBuilder& self, Value x, nb::handle mean, nb::handle std,
             const std::string& name) {
            return self.now().normalise(x, numbers_of("mean", mean), numbers_of("std", std), name);
          },
          nb::arg("x"), nb::arg("mean") = nb::tuple(), nb::arg("std") = nb::tuple(), nb::kw_only(),
          nb::arg("name") = "", nb::sig(signature_of_normalise), document_of_normalise)
      .def("convolution", &convolution, nb::arg("x"), nb::arg("weights").none(),
           nb::arg("bias").none() = none, nb::kw_only(), nb::arg("stride") = 1, nb::arg("pad") = 0,
           nb::arg("dil") = 1, nb::arg("groups") = 1, nb::arg("strict") = false,
           nb::arg("weights_layout") = "krsc", nb::arg("name") = "",
           nb::sig(signature_of_convolution), document_of_convolution)
      .def("linear", &linear, nb::arg("x"), nb::arg("weights").none(),
           nb::arg("bias").none() = none, nb::kw_only(), nb::arg("name") = "",
           nb::sig(signature_of_linear), document_of_linear)
      .def("batch_norm", &batch_norm, nb::arg("x"), nb::arg("gamma").none(), nb::arg("beta").none(),
           nb::arg("mean").none(), nb::arg("variance").none(), nb::kw_only(),
           nb::arg("eps") = 1e-5F, nb::arg("name") = "", nb::sig(signature_of_batch_norm),
           document_of_batch_norm)
      .def("activation", &activation, nb::arg("x"), nb::arg("act").none(), nb::kw_only(),
           nb::arg("soft") = false, nb::arg("name") = "", nb::sig(signature_of_activation),
           document_of_activation)
      .def("max_pool", &max_pool, nb::arg("x"), nb::arg("pool").none(), nb::kw_only(),
           nb::arg("name") = "", nb::sig(signature_of_max_pool), document_of_max_pool)
      .def(
          "concat",
          [](PythonBuilder& self, const std::vector<Value>& values, const std::string& name) {
            return self.now().concat(values, name);
          },
          nb::arg("values"), nb::kw_only(), nb::arg("name") = "", document_of_concat)
      .def(
          "slice",
          [](PythonBuilder& self, Value x, Index first, Index count, const std::string& name) {
            return self.now().slice(x, first, count, name);
          },
          nb::arg("x"), nb::arg("first"), nb::arg("count"), nb::kw_only(), nb::arg("name") = "",
          document_of_slice)
      .def(
          "flatten",
          [](PythonBuilder& self, Value x, bool channels_first, const std::string& name) {
            return self.now().flatten(x, channels_first, name);
          },
          nb::arg("x"), nb::arg("channels_first") = true, nb::kw_only(), nb::arg("name") = "",
          document_of_flatten)
      .def(
          "mean_of_steps",
          [](PythonBuilder& self, Value x, const std::string& name) {
            return self.now().mean_of_steps(x, name);
          },
          nb::arg("x"), nb::kw_only(), nb::arg("name") = "", document_of_mean_of_steps)
      .def(
          "output",
          [](PythonBuilder& self, const std::string& name, Value x) { self.now().output(name, x); },
          nb::arg("name"), nb::arg("x"), document_of_graph_output)
      .def(
          "describe",
          [](PythonBuilder& self) {
            const std::string text = self.now().describe();
            return nb::module_::import_("convoy.records").attr("Text")(text);
          },
          nb::sig("def describe(self) -> str"), document_of_describe)
      .def("build", &build, nb::kw_only(), nb::arg("device") = "cpu", nb::arg("threads") = 0,
           nb::arg("batch") = 0, nb::arg("spike_kernels") = true, nb::arg("weights") = "f32",
           nb::arg("openmp") = false, nb::sig(signature_of_build), document_of_build);
}

}  // namespace convoy::python
