// convoy.Plan and convoy.Weights.
#include "convoy/plan.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <functional>
#include <utility>

#include "core/gpu.hpp"
#include "documents.hpp"
#include "errors.hpp"
#include "layout.hpp"
#include "openmp.hpp"
#include "stage.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// A plan, and what a call needs to know of it. C++ asks that new weights do not overlap a run;
/// from Python that is refused, as a fork's child would wait for ever for a lock of another
/// thread's.
class PythonPlan {
 public:
  PythonPlan(const Stage& stage, const PlanOptions& options, Axes axes)
      : plan(stage, options), axes_(axes), y_shape_(convoy::y_shape(plan.stage())) {
    const Stage& made = plan.stage();
    const Shapes& shapes = plan.shapes();
    last_ = made.layout == Layout::nhwc;
    x_ = {made.h, made.w, made.c};
    y_ = {shapes.out_h, shapes.out_w, made.k};
    kept_ = {shapes.p, shapes.q, made.k};
    n_axis_ = made.act.is_neuron() ? 1 : 0;
    y_dtype_ = made.output_dtype(plan.device().kind == DeviceKind::cuda);
  }

  nb::object run(nb::handle x, nb::handle bias, nb::handle norm, nb::handle out, nb::handle pre,
                 nb::handle act, nb::handle idx, nb::handle membrane, nb::handle membrane_out,
                 nb::handle stream);
  void change(const std::function<void()>& weights);

  Plan plan;

 private:
  struct Output;
  void prepare(Output& output, nb::handle given, const char* name, const ArrayType& type,
               DType dtype, const std::vector<Index>& shape, const Pixels& pixels, bool first,
               Index n, Stream stream);

  Axes axes_;
  std::vector<Index> y_shape_;
  bool last_ = true;
  Pixels x_, y_, kept_;
  std::size_t n_axis_ = 0;
  DType y_dtype_ = DType::f32;
  std::atomic<int> runs_{0};  // under way; -1: weights are changing
};

/// Counts a run, or refuses it.
class Running {
 public:
  explicit Running(std::atomic<int>& runs) : runs_(runs) {
    int now = runs_.load();
    do {
      if (now < 0)
        raise(StatusCode::busy,
              "run: another thread is changing the plan's weights; expected it to be done. Call "
              "run after set_weights or use has returned.");
    } while (!runs_.compare_exchange_weak(now, now + 1));
  }
  ~Running() { runs_.fetch_sub(1); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<int>& runs_;
};

struct PythonPlan::Output {
  nb::object object;  // what the caller gets; unset: nothing is written
  Array given;
  TensorView view;
};

void PythonPlan::prepare(Output& output, nb::handle given, const char* name, const ArrayType& type,
                         DType dtype, const std::vector<Index>& shape, const Pixels& pixels,
                         bool first, Index n, Stream stream) {
  const Device device = plan.device();
  if (given.is_none()) {
    std::vector<Index> sizes = shape;
    sizes[n_axis_] = n;
    NewArray made = new_array(type, dtype, sizes, device, first);
    output.object = std::move(made.object);
    output.view = made.view;
    return;
  }
  output.object = nb::borrow(given);
  output.given.take(given, name, Access::write, device, stream);
  if (last_) as_channels_last(output.given, name, axes_, pixels);
  output.view = output.given.view;
}

nb::object PythonPlan::run(nb::handle x, nb::handle bias, nb::handle norm, nb::handle out,
                           nb::handle pre, nb::handle act, nb::handle idx, nb::handle membrane,
                           nb::handle membrane_out, nb::handle stream_given) {
  const Running running(runs_);
  const Device device = plan.device();
  const Stage& stage = plan.stage();
  const Stream stream = stream_of(stream_given, x, device);
  nb::object scale_object, shift_object;  // of a sequence that makes them when it is asked
  Array x_array, bias_array, scale, shift, before, after;
  x_array.take(x, "x", Access::read, device, stream);
  if (x.is_none()) raise(StatusCode::invalid_operand, "x: None, expected an array");
  for (int axis = 0; axis < x_array.view.rank; ++axis)
    if (const auto& shape = x_array.view.shape; shape.at(static_cast<std::size_t>(axis)) == 0)
      raise(StatusCode::invalid_operand,
            fmt::format("x: no elements ([{}]), expected one image or more",
                        fmt::join(shape.begin(), shape.begin() + x_array.view.rank, ",")));
  const bool first = last_ && as_channels_last(x_array, "x", axes_, x_);
  bias_array.take(bias, "bias", Access::read, device, stream);
  if (!norm.is_none()) {
    if (nb::len(norm) != 2)
      raise(StatusCode::invalid_operand,
            fmt::format("norm: {} values, expected a pair of arrays (scale, shift) of [C] f32 each",
                        nb::len(norm)));
    scale_object = norm[0], shift_object = norm[1];
    scale.take(scale_object, "norm[0]", Access::read, device, stream);
    shift.take(shift_object, "norm[1]", Access::read, device, stream);
  }
  before.take(membrane, "membrane", Access::read, device, stream);
  after.take(membrane_out, "membrane_out", Access::write, device, stream);

  // Where x has another rank or device than it should, the plan's own error says so.
  const std::size_t x_axis = stage.act.is_neuron() && !stage.hold ? 1 : 0;
  const bool plausible =
      x_array.view.rank == static_cast<int>(x_axis) + 4 && x_array.view.device == device;
  const Index n = plausible ? x_array.view.shape.at(x_axis) : 1;
  if (n < 0 || n > stage.n)
    raise(StatusCode::invalid_operand,
          fmt::format("x: {}, {} images; expected at most the plan's {}. Make a plan of that n, or "
                      "call it for fewer at a time.",
                      describe(x_array.view), n, stage.n));
  Output y, pre_output, act_output, idx_output;
  const ArrayType& type = *x_array.type;
  prepare(y, out, "out", type, y_dtype_, y_shape_, y_, first, n, stream);
  if (stage.keep.any()) {
    const std::vector<Index> kept_shape = convoy::pre_shape(stage);
    if (stage.keep.pre || !pre.is_none())
      prepare(pre_output, pre, "pre", type, y_dtype_, kept_shape, kept_, first, n, stream);
    if (stage.keep.act || !act.is_none())
      prepare(act_output, act, "act", type, y_dtype_, kept_shape, kept_, first, n, stream);
    if (stage.keep.idx || !idx.is_none())
      prepare(idx_output, idx, "idx", type, DType::i32, y_shape_, y_, first, n, stream);
  } else if (!pre.is_none() || !act.is_none() || !idx.is_none()) {
    raise(
        StatusCode::invalid_operand,
        fmt::format("pre, act or idx: an array, expected None: {} keeps nothing. Add keep(...) to "
                    "the stage.",
                    to_text(stage)));
  }
  const Operands operands{.x = x_array.view,
                          .bias = bias_array.view,
                          .norm_scale = scale.view,
                          .norm_shift = shift.view,
                          .y = y.view,
                          .pre = pre_output.view,
                          .act = act_output.view,
                          .idx = idx_output.view,
                          .membrane_in = before.view,
                          .membrane_out = after.view};
  Status status;
  {
    const nb::gil_scoped_release released;
    status = plan.run(operands, stream);
    // JAX knows nothing of the stream.
    if (status.ok() && device.kind == DeviceKind::cuda && type.maker == Maker::jax)
      gpu::synchronize(device, stream);
  }
  raise_unless_ok(status);
  if (!stage.keep.any()) return delivered(type, std::move(y.object));
  const nb::object outputs = nb::module_::import_("convoy.records").attr("Outputs");
  const auto or_none = [&](const Output& one) {
    return one.object.is_valid() ? delivered(type, one.object) : nb::none();
  };
  return outputs(or_none(y), or_none(pre_output), or_none(act_output), or_none(idx_output));
}

void PythonPlan::change(const std::function<void()>& weights) {
  int none = 0;
  if (!runs_.compare_exchange_strong(none, -1))
    raise(StatusCode::busy,
          none < 0 ? "weights: another thread is changing them; expected one at a time"
                   : fmt::format("weights: {} runs of this plan are under way, expected none. Wait "
                                 "for them, or make a plan for each thread with `pack` and `use`.",
                                 none));
  struct Done {
    std::atomic<int>& runs;
    ~Done() { runs.store(0); }
  } const done{runs_};
  weights();
}

/// Filters as the array's axes name them, as a view of [K, R, S, C/groups].
void take_weights(Array& array, nb::handle weights, const std::string& layout, Device device,
                  Stream stream) {
  array.take(weights, "weights", Access::read, device, stream);
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

Weights pack(const PythonPlan& self, nb::handle weights, const std::string& layout,
             nb::handle stream_given) {
  const Stream stream = stream_of(stream_given, weights, self.plan.device());
  Array array;
  take_weights(array, weights, layout, self.plan.device(), stream);
  const nb::gil_scoped_release released;
  return self.plan.pack(array.view, stream);
}

void set_weights(PythonPlan& self, nb::handle weights, const std::string& layout,
                 nb::handle stream_given) {
  const Stream stream = stream_of(stream_given, weights, self.plan.device());
  Array array;
  take_weights(array, weights, layout, self.plan.device(), stream);
  self.change([&] {
    const nb::gil_scoped_release released;
    self.plan.set_weights(array.view, stream);
  });
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

nb::object explanation(const PythonPlan& self) {
  const std::string text = self.plan.explain();
  return nb::module_::import_("convoy.records").attr("Text")(text);
}

nb::object facts(const PythonPlan& self) {
  return nb::module_::import_("json").attr("loads")(self.plan.explain_json());
}

std::string html(const PythonPlan& self) {
  const nb::object escape = nb::module_::import_("html").attr("escape");
  return fmt::format(
      "<details open><summary><code>{}</code>: <b>{}</b> {}</summary><pre>{}</pre></details>",
      nb::str(escape(to_text(self.plan.stage()))).c_str(),
      nb::str(escape(self.plan.kernel())).c_str(), nb::str(escape(self.plan.tile())).c_str(),
      nb::str(escape(self.plan.explain())).c_str());
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
          "What plans must agree on to share them: device, kernel and layout.");

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
    plan.def(name, &PythonPlan::run, nb::arg("x").none(), nb::arg("bias").none() = none,
             nb::kw_only(), nb::arg("norm").none() = none, nb::arg("out").none() = none,
             nb::arg("pre").none() = none, nb::arg("act").none() = none,
             nb::arg("idx").none() = none, nb::arg("membrane").none() = none,
             nb::arg("membrane_out").none() = none, nb::arg("stream").none() = none,
             nb::sig(signature), document_of_run);
  refuse_copies(
      plan,
      "a convoy.Plan can be neither copied nor pickled: it holds what was chosen and packed "
      "for one machine. Make it again from its stage and weights: "
      "convoy.Plan(plan.stage, weights). Pickle plan.stage and the weights.");
  plan.def("set_weights", &set_weights, nb::arg("weights"), nb::kw_only(),
           nb::arg("weights_layout") = "krsc", nb::arg("stream").none() = none,
           document_of_set_weights)
      .def("pack", &pack, nb::arg("weights"), nb::kw_only(), nb::arg("weights_layout") = "krsc",
           nb::arg("stream").none() = none, document_of_pack)
      .def(
          "use",
          [](PythonPlan& self, const Weights& weights) {
            self.change([&] { self.plan.use(weights); });
          },
          nb::arg("weights"),
          "Runs read these weights from now on. Raises Error where they are of another packing, "
          "and\n"
          "Busy while a run is under way.")
      .def("explain", &explanation, nb::sig("def explain(self) -> str"), document_of_explain)
      .def("explain_json", &facts, "The facts of `explain` as a dict: seconds, bytes, operations.",
           nb::sig("def explain_json(self) -> dict[str, typing.Any]"))
      .def("_repr_html_", &html)
      .def("__repr__",
           [](const PythonPlan& self) {
             return fmt::format("<convoy.Plan {} on {}: {} {}>", to_text(self.plan.stage()),
                                to_text(self.plan.device()), self.plan.kernel(), self.plan.tile());
           })
      .def_prop_ro("stage", [](const PythonPlan& self) { return self.plan.stage(); })
      .def_prop_ro("device", [](const PythonPlan& self) { return to_text(self.plan.device()); })
      .def_prop_ro("kernel", [](const PythonPlan& self) { return self.plan.kernel(); })
      .def_prop_ro("tile", [](const PythonPlan& self) { return self.plan.tile(); })
      .def_prop_ro(
          "arithmetic", [](const PythonPlan& self) { return self.plan.arithmetic(); },
          "The algorithm and its order of summation: what fixes the bits.")
      .def_prop_ro("packing", [](const PythonPlan& self) { return self.plan.packing(); })
      .def_prop_ro("threads", [](const PythonPlan& self) { return self.plan.threads(); })
      .def_prop_ro("workspace_bytes",
                   [](const PythonPlan& self) { return self.plan.workspace_bytes(); });
}

}  // namespace convoy::python
