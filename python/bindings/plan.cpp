// convoy.Plan and convoy.Weights.
#include "plan.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <functional>
#include <thread>
#include <utility>

#include "documents.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "openmp.hpp"
#include "stage.hpp"

namespace nb = nanobind;

namespace convoy::python {

PythonPlan::PythonPlan(const Stage& stage, const PlanOptions& options, Axes axes)
    : plan(stage, options), axes_(axes), y_shape_(convoy::y_shape(plan.stage())) {
  const Stage& made = plan.stage();
  const Shapes& shapes = plan.shapes();
  last_ = made.layout == Layout::nhwc;
  x_ = {made.h, made.w, made.c};
  y_ = {shapes.out_h, shapes.out_w, made.k};
  kept_ = {shapes.p, shapes.q, made.k};
  n_axis_ = made.act.is_neuron() ? 1 : 0;
  y_dtype_ = made.output_dtype(plan.device().kind == DeviceKind::cuda);
  // The plan's own workspace stays unused then. It is what says at once that memory is short.
  if (plan.device().kind == DeviceKind::cuda && plan.workspace_bytes() > 0)
    scratch_.emplace(plan.device(), plan.workspace_bytes());
}

void PythonPlan::change(const std::function<void()>& weights) {
  int none = 0;
  if (!runs_.compare_exchange_strong(none, -1))
    raise(StatusCode::busy,
          none < 0 ? "weights: another thread is changing them; expected one change at a time"
                   : fmt::format("weights: {} runs of this plan are under way, expected none. Wait "
                                 "for them, or make a plan for each thread with `pack` and `use`.",
                                 none));
  struct Done {
    std::atomic<int>& runs;
    ~Done() { runs.store(0); }
  } const done{runs_};
  weights();
}

void PythonPlan::change_between_runs(const std::function<void()>& weights) {
  while (is_running()) {
    const nb::gil_scoped_release released;
    std::this_thread::yield();
  }
  weights();
}

void take_weights(Array& array, nb::handle weights, const std::string& layout, Device device,
                  Stream stream) {
  array.take(weights, "weights", Access::read, device, stream);
  array.hold(weights);
  if (layout == "krsc") return;
  if (layout != "kcrs")
    throw Error(fmt::format("weights_layout: '{}', expected 'krsc' or 'kcrs', PyTorch's", layout));
  TensorView& view = array.view;
  if (view.rank != 4)
    raise(StatusCode::invalid_operand,
          fmt::format("weights: {}, expected [K, C/groups, R, S]", describe(view)));
  std::swap(view.shape[1], view.shape[2]), std::swap(view.shape[2], view.shape[3]);
  std::swap(view.stride[1], view.stride[2]), std::swap(view.stride[2], view.stride[3]);
}

namespace {

Weights pack(const PythonPlan& self, nb::handle weights, const std::string& layout,
             nb::handle stream_given) {
  const Stream stream = stream_of(stream_given, weights, self.plan.device());
  Array array;
  take_weights(array, weights, layout, self.plan.device(), stream);
  Weights packed = [&] {
    const Released released;
    return self.plan.pack(array.view, stream);
  }();
  array.check_unchanged(weights, "weights");
  return packed;
}

void set_weights(PythonPlan& self, nb::handle weights, const std::string& layout,
                 nb::handle stream_given) {
  const Stream stream = stream_of(stream_given, weights, self.plan.device());
  Array array;
  take_weights(array, weights, layout, self.plan.device(), stream);
  self.change([&] {
    const Weights packed = [&] {
      const Released released;
      return self.plan.pack(array.view, stream);
    }();
    array.check_unchanged(weights, "weights");
    const Released released;
    self.plan.use(packed, stream);
  });
}

void repack(PythonPlan& self, nb::handle weights, const std::string& layout,
            nb::handle stream_given) {
  const Stream stream = stream_of(stream_given, weights, self.plan.device());
  Array array;
  take_weights(array, weights, layout, self.plan.device(), stream);
  self.change_between_runs([&] { self.plan.repack(array.view, stream); });
}

void make_plan(PythonPlan* self, nb::handle stage, nb::handle weights, const std::string& device,
               int threads, bool all_threads, const std::string& kernel, const std::string& tile,
               int concurrent_runs, bool flip_filters, bool use_tuning, bool openmp,
               const std::string& axes, const std::string& layout) {
  const PlanOptions options{.device = parse_device(device),
                            .threads = threads,
                            .all_threads = all_threads,
                            .kernel = kernel,
                            .tile = tile,
                            .concurrent_runs = concurrent_runs,
                            .flip_filters = flip_filters,
                            .use_tuning = use_tuning,
                            .caller_threads = openmp ? openmp_threads() : nullptr};
  const Stage asked = stage_of(stage);
  const Axes named = axes_of(axes);
  auto* const made = new (self) PythonPlan(asked, options, named);
  if (weights.is_none()) return;
  try {
    set_weights(*made, weights, layout, nb::none());
  } catch (...) {
    made->~PythonPlan();  // nobody else will: the object counts as never made
    throw;
  }
}

nb::object run(PythonPlan& self, nb::handle x, nb::handle bias, nb::handle norm, nb::handle out,
               nb::handle pre, nb::handle act, nb::handle idx, nb::handle membrane,
               nb::handle membrane_out, nb::handle stream) {
  return self.run({x, bias, norm, out, pre, act, idx, membrane, membrane_out, stream});
}

nb::object explanation(const PythonPlan& self) {
  const std::string text = self.plan.explain();
  return nb::module_::import_("convoy.records").attr("Text")(text);
}

nb::object facts(const PythonPlan& self) {
  return nb::module_::import_("json").attr("loads")(self.plan.explain_json());
}

std::string html(const PythonPlan& self) {
  const nb::object escape = nb::module_::import_("html").attr("escape");
  const auto escaped = [&](const std::string& text) { return utf8_of(escape(text)); };
  return fmt::format(
      "<details open><summary><code>{}</code>: <b>{}</b> {}</summary><pre>{}</pre></details>",
      escaped(to_text(self.plan.stage())), escaped(self.plan.kernel()), escaped(self.plan.tile()),
      escaped(self.plan.explain()));
}

}  // namespace

void define_plan(nb::module_& module) {
  auto packed = nb::class_<Weights>(module, "Weights", document_of_weights);
  refuse_copies(
      packed,
      "a convoy.Weights can be neither copied nor pickled: it is packed for one machine's "
      "kernel. Pickle the weights that it was packed from, and make it again: "
      "plan.pack(weights). Plans share one: plan.use(packed).")
      .def("__repr__",
           [](const Weights& self) { return fmt::format("<convoy.Weights {}>", self.packing()); })
      .def_prop_ro(
          "packing", [](const Weights& self) { return self.packing(); },
          "A text that names device, kernel and layout. Plans with an equal `packing` can use "
          "these weights.");

  const auto none = nb::none();
  auto plan =
      nb::class_<PythonPlan>(module, "Plan", document_of_plan)
          .def("__init__", &make_plan, nb::arg("stage"), nb::arg("weights").none() = none,
               nb::kw_only(), nb::arg("device") = "cpu", nb::arg("threads") = 0,
               nb::arg("all_threads") = false, nb::arg("kernel") = "", nb::arg("tile") = "",
               nb::arg("concurrent_runs") = 1, nb::arg("flip_filters") = false,
               nb::arg("use_tuning") = true, nb::arg("openmp") = false, nb::arg("axes") = "auto",
               nb::arg("weights_layout") = "krsc", nb::sig(signature_of_plan));
  for (const auto& [name, signature] :
       {std::pair{"__call__", signature_of_call}, std::pair{"run", signature_of_run}})
    plan.def(name, &run, nb::arg("x").none(), nb::arg("bias").none() = none, nb::kw_only(),
             nb::arg("norm").none() = none, nb::arg("out").none() = none,
             nb::arg("pre").none() = none, nb::arg("act").none() = none,
             nb::arg("idx").none() = none, nb::arg("membrane").none() = none,
             nb::arg("membrane_out").none() = none, nb::arg("stream").none() = none,
             nb::sig(signature), document_of_run);
  refuse_copies(plan,
                "a convoy.Plan can be neither copied nor pickled: it holds choices and packed "
                "weights for one machine. Make it again from its stage and weights: "
                "convoy.Plan(plan.stage, weights). Pickle plan.stage and the weights.");
  plan.def("set_weights", &set_weights, nb::arg("weights"), nb::kw_only(),
           nb::arg("weights_layout") = "krsc", nb::arg("stream").none() = none,
           document_of_set_weights)
      .def("repack", &repack, nb::arg("weights"), nb::kw_only(), nb::arg("weights_layout") = "krsc",
           nb::arg("stream").none() = none, document_of_repack)
      .def("pack", &pack, nb::arg("weights"), nb::kw_only(), nb::arg("weights_layout") = "krsc",
           nb::arg("stream").none() = none, document_of_pack)
      .def(
          "use",
          [](PythonPlan& self, const Weights& weights) {
            self.change([&] { self.plan.use(weights); });
          },
          nb::arg("weights"), document_of_use)
      .def("explain", &explanation, nb::sig("def explain(self) -> str"), document_of_explain)
      .def("explain_json", &facts, document_of_explain_json,
           nb::sig("def explain_json(self) -> dict[str, typing.Any]"))
      .def("_repr_html_", &html, "Returns `explain` as HTML, for notebooks.")
      .def("__repr__",
           [](const PythonPlan& self) {
             return fmt::format("<convoy.Plan {} on {}: {} {}>", to_text(self.plan.stage()),
                                to_text(self.plan.device()), self.plan.kernel(), self.plan.tile());
           })
      .def_prop_ro(
          "stage", [](const PythonPlan& self) { return self.plan.stage(); },
          "The `Stage` that the plan computes.")
      .def_prop_ro(
          "device", [](const PythonPlan& self) { return to_text(self.plan.device()); },
          "The device, for example \"cpu\", \"cuda\" or \"cuda:1\".")
      .def_prop_ro(
          "kernel", [](const PythonPlan& self) { return self.plan.kernel(); },
          "The name of the kernel, as `explain` prints it.")
      .def_prop_ro(
          "tile", [](const PythonPlan& self) { return self.plan.tile(); },
          "The name of the kernel's tile, as `explain` prints it.")
      .def_prop_ro(
          "arithmetic", [](const PythonPlan& self) { return self.plan.arithmetic(); },
          "The algorithm and its order of additions. Plans with an equal `arithmetic` give the "
          "same bits.")
      .def_prop_ro(
          "packing", [](const PythonPlan& self) { return self.plan.packing(); },
          "A text that names device, kernel and layout of the weights. Plans with an equal "
          "`packing` can share `Weights`.")
      .def_prop_ro(
          "threads", [](const PythonPlan& self) { return self.plan.threads(); },
          "The largest number of CPU threads that a run may use; 1 on a GPU.")
      .def_prop_ro(
          "workspace_bytes", [](const PythonPlan& self) { return self.plan.workspace_bytes(); },
          "The bytes of workspace that one run needs; 0: none.");
}

}  // namespace convoy::python
