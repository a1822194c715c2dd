// convoy.Plan and convoy.Weights.
#include "convoy/plan.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "core/gpu.hpp"
#include "documents.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "layout.hpp"
#include "openmp.hpp"
#include "scratch.hpp"
#include "stage.hpp"
#include "torch_tensor.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// What Python gives to a run.
struct Given {
  nb::handle x, bias, norm, out, pre, act, idx, membrane, membrane_out, stream;
};

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
    if (plan.device().kind == DeviceKind::cuda && plan.workspace_bytes() > 0)
      scratch_.emplace(plan.device(), plan.workspace_bytes());
  }

  nb::object run(const Given& given);
  void change(const std::function<void()>& weights);
  /// Waits for runs under way: on a GPU a run takes as long as its launches. No run begins before
  /// it is over, for it keeps Python's lock.
  void change_between_runs(const std::function<void()>& weights);

  Plan plan;

 private:
  class Call;

  Axes axes_;
  std::vector<Index> y_shape_;
  bool last_ = true;
  Pixels x_, y_, kept_;
  std::size_t n_axis_ = 0;
  DType y_dtype_ = DType::f32;
  std::atomic<int> runs_{0};        // under way; -1: weights are changing
  std::optional<Scratch> scratch_;  // of a GPU's plan that needs workspaces
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

/// One run: the arrays that Python gave, and those that are made for it.
class PythonPlan::Call {
 public:
  Call(PythonPlan& self, const Given& given)
      : self_(self),
        given_(given),
        stage_(self.plan.stage()),
        device_(self.plan.device()),
        stream_(stream_of(given.stream, given.x, device_)) {
    take_x();
    bias_.take(given.bias, "bias", Access::read, device_, stream_);
    if (!given.norm.is_none()) take_norm();
    before_.take(given.membrane, "membrane", Access::read, device_, stream_);
    after_.take(given.membrane_out, "membrane_out", Access::write, device_, stream_);
    find_n();
    prepare_outputs();
    check_unchanged();
  }

  nb::object run() {
    Operands operands{.x = x_.view,
                      .bias = bias_.view,
                      .norm_scale = scale_.view,
                      .norm_shift = shift_.view,
                      .y = y_.view,
                      .pre = pre_.view,
                      .act = act_.view,
                      .idx = idx_.view,
                      .membrane_in = before_.view,
                      .membrane_out = after_.view};
    Status status;
    std::optional<Scratch::Lent> scratch;
    if (self_.scratch_) scratch.emplace(*self_.scratch_, *x_.type, stream_);
    {
      const Released released;
      if (scratch) operands.workspace = scratch->begin();
      status = self_.plan.run(operands, stream_);
      if (scratch) scratch->end();
      // JAX knows nothing of the stream.
      if (status.ok() && device_.kind == DeviceKind::cuda && x_.type->maker == Maker::jax)
        gpu::synchronize(device_, stream_);
    }
    if (status.ok() || status.code() == StatusCode::device_error) count_writes();
    raise_unless_ok(status);
    if (!stage_.keep.any()) return delivered(*x_.type, std::move(y_.object), device_, stream_);
    const nb::object outputs = nb::module_::import_("convoy.records").attr("Outputs");
    const auto or_none = [&](const Output& one) {
      return one.object.is_valid() ? delivered(*x_.type, one.object, device_, stream_) : nb::none();
    };
    return outputs(or_none(y_), or_none(pre_), or_none(act_), or_none(idx_));
  }

 private:
  struct Output {
    nb::object object;  // what the caller gets; unset: nothing is written
    Array given;
    TensorView view;
  };

  /// Of outputs that the caller gave.
  void count_writes() const {
    const auto count = [](const Array& array, nb::handle object) {
      if (array.type && array.type->maker == Maker::torch) count_write(object);
    };
    count(y_.given, given_.out), count(pre_.given, given_.pre), count(act_.given, given_.act);
    count(idx_.given, given_.idx), count(after_, given_.membrane_out);
  }

  void take_x() {
    x_.take(given_.x, "x", Access::read, device_, stream_);
    if (given_.x.is_none()) raise(StatusCode::invalid_operand, "x: None, expected an array");
    for (int axis = 0; axis < x_.view.rank; ++axis)
      if (const auto& shape = x_.view.shape; shape.at(static_cast<std::size_t>(axis)) == 0)
        raise(StatusCode::invalid_operand,
              fmt::format("x: no elements ([{}]), expected one image or more",
                          fmt::join(shape.begin(), shape.begin() + x_.view.rank, ",")));
    first_ = self_.last_ && as_channels_last(x_, "x", self_.axes_, self_.x_);
  }

  void take_norm() {
    constexpr const char* expected = "expected a pair of arrays (scale, shift) of [C] f32 each";
    if (!PySequence_Check(given_.norm.ptr()))
      raise(StatusCode::invalid_operand,
            fmt::format("norm: {}, {}", name_of_type(given_.norm), expected));
    if (nb::len(given_.norm) != 2)
      raise(StatusCode::invalid_operand,
            fmt::format("norm: {} values, {}", nb::len(given_.norm), expected));
    scale_object_ = given_.norm[0], shift_object_ = given_.norm[1];
    called_python_ =
        !PyTuple_CheckExact(given_.norm.ptr()) && !PyList_CheckExact(given_.norm.ptr());
    scale_.take(scale_object_, "norm[0]", Access::read, device_, stream_);
    shift_.take(shift_object_, "norm[1]", Access::read, device_, stream_);
  }

  /// Where taking an operand ran code in Python, which may have changed another.
  void check_unchanged() const {
    const std::initializer_list<std::tuple<const Array&, nb::handle, const char*>> all{
        {x_, given_.x, "x"},
        {bias_, given_.bias, "bias"},
        {scale_, scale_object_, "norm[0]"},
        {shift_, shift_object_, "norm[1]"},
        {before_, given_.membrane, "membrane"},
        {after_, given_.membrane_out, "membrane_out"},
        {y_.given, given_.out, "out"},
        {pre_.given, given_.pre, "pre"},
        {act_.given, given_.act, "act"},
        {idx_.given, given_.idx, "idx"}};
    bool called = called_python_;
    for (const auto& [array, object, name] : all) called |= array.called_python();
    if (!called) return;
    for (const auto& [array, object, name] : all) array.check_unchanged(object, name);
  }

  void find_n() {
    // Where x has another rank or device than it should, the plan's own error says so.
    const std::size_t axis = stage_.act.is_neuron() && !stage_.hold ? 1 : 0;
    if (x_.view.rank == static_cast<int>(axis) + 4 && x_.view.device == device_)
      n_ = x_.view.shape.at(axis);
    if (n_ < 0 || n_ > stage_.n)
      raise(StatusCode::invalid_operand,
            fmt::format("x: {}, {} images; expected at most the plan's {}. Make a plan of that n, "
                        "or call it for fewer at a time.",
                        describe(x_.view), n_, stage_.n));
  }

  void prepare_outputs() {
    prepare(y_, given_.out, "out", self_.y_dtype_, self_.y_shape_, self_.y_);
    const Keep& keep = stage_.keep;
    if (keep.any()) {
      const std::vector<Index> kept = convoy::pre_shape(stage_);
      if (keep.pre || !given_.pre.is_none())
        prepare(pre_, given_.pre, "pre", self_.y_dtype_, kept, self_.kept_);
      if (keep.act || !given_.act.is_none())
        prepare(act_, given_.act, "act", self_.y_dtype_, kept, self_.kept_);
      if (keep.idx || !given_.idx.is_none())
        prepare(idx_, given_.idx, "idx", DType::i32, self_.y_shape_, self_.y_);
    } else if (!given_.pre.is_none() || !given_.act.is_none() || !given_.idx.is_none()) {
      raise(StatusCode::invalid_operand,
            fmt::format("pre, act or idx: an array, expected None: {} keeps nothing. Add "
                        "keep(...) to the stage.",
                        to_text(stage_)));
    }
  }

  void prepare(Output& output, nb::handle given, const char* name, DType dtype,
               const std::vector<Index>& shape, const Pixels& pixels) {
    if (given.is_none()) {
      std::vector<Index> sizes = shape;
      sizes[self_.n_axis_] = n_;
      NewArray made = new_array(*x_.type, dtype, sizes, device_, first_);
      output.object = std::move(made.object);
      output.view = made.view;
      return;
    }
    output.object = nb::borrow(given);
    output.given.take(given, name, Access::write, device_, stream_);
    if (self_.last_) as_channels_last(output.given, name, self_.axes_, pixels);
    output.view = output.given.view;
  }

  PythonPlan& self_;
  const Given& given_;
  const Stage& stage_;
  const Device device_;
  const Stream stream_;
  nb::object scale_object_, shift_object_;  // of a sequence that makes them when it is asked
  Array x_, bias_, scale_, shift_, before_, after_;
  bool first_ = false;  // x calls its axes channels first
  bool called_python_ = false;
  Index n_ = 1;
  Output y_, pre_, act_, idx_;
};

nb::object PythonPlan::run(const Given& given) {
  const Running running(runs_);
  return Call(*this, given).run();
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

void PythonPlan::change_between_runs(const std::function<void()>& weights) {
  while (runs_.load() != 0) {
    const nb::gil_scoped_release released;
    std::this_thread::yield();
  }
  weights();
}

/// Filters as the array's axes name them, as a view of [K, R, S, C/groups].
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
    plan.def(name, &run, nb::arg("x").none(), nb::arg("bias").none() = none, nb::kw_only(),
             nb::arg("norm").none() = none, nb::arg("out").none() = none,
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
      .def("repack", &repack, nb::arg("weights"), nb::kw_only(), nb::arg("weights_layout") = "krsc",
           nb::arg("stream").none() = none, document_of_repack)
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
