// What a plan does with the arrays that Python gives it: a call, from operands to results.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "core/gpu.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "plan.hpp"
#include "torch_tensor.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// Counts a run, or refuses it.
class Running {
 public:
  explicit Running(std::atomic<int>& runs) : runs_(runs) {
    int now = runs_.load();
    do {
      if (now < 0)
        raise(StatusCode::busy,
              "run: another thread is changing the plan's weights; expected no change during a "
              "run. Call run after set_weights or use has returned.");
    } while (!runs_.compare_exchange_weak(now, now + 1));
  }
  ~Running() { runs_.fetch_sub(1); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<int>& runs_;
};

}  // namespace

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
    if (stage_.keep.any() || given.any_is_rare()) take_rare();
    find_n();
    prepare_outputs();
    check_unchanged();
  }

  nb::object run() {
    Operands operands{.x = x_.view, .bias = bias_.view, .y = y_.view};
    if (rare_) rare_->add_to(operands);
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
    return outputs(or_none(y_), or_none(rare_->pre), or_none(rare_->act), or_none(rare_->idx));
  }

 private:
  struct Output {
    nb::object object;  // what the caller gets; unset: nothing is written
    Array given;
    TensorView view;
  };

  /// What few stages have. Most calls do without, and need not even clear it.
  struct Rare {
    nb::object scale_object, shift_object;  // of a sequence that makes them when it is asked
    Array scale, shift, before, after;
    Output pre, act, idx;

    void add_to(Operands& operands) const {
      operands.norm_scale = scale.view, operands.norm_shift = shift.view;
      operands.pre = pre.view, operands.act = act.view, operands.idx = idx.view;
      operands.membrane_in = before.view, operands.membrane_out = after.view;
    }
  };

  /// Of outputs that the caller gave.
  void count_writes() const {
    const auto count = [](const Array& array, nb::handle object) {
      if (array.type && array.type->maker == Maker::torch) count_write(object);
    };
    count(y_.given, given_.out);
    if (!rare_) return;
    count(rare_->pre.given, given_.pre), count(rare_->act.given, given_.act);
    count(rare_->idx.given, given_.idx), count(rare_->after, given_.membrane_out);
  }

  void take_x() {
    x_.take(given_.x, "x", Access::read, device_, stream_);
    if (given_.x.is_none()) raise(StatusCode::invalid_operand, "x: None, expected an array");
    first_ = self_.last_ && as_channels_last(x_, "x", self_.axes_, self_.x_);
  }

  void take_rare() {
    Rare& rare = rare_.emplace();
    if (!given_.norm.is_none()) take_norm(rare);
    rare.before.take(given_.membrane, "membrane", Access::read, device_, stream_);
    rare.after.take(given_.membrane_out, "membrane_out", Access::write, device_, stream_);
  }

  void take_norm(Rare& rare) {
    constexpr const char* expected = "expected a pair of arrays (scale, shift) of [C] f32 each";
    if (!PySequence_Check(given_.norm.ptr()))
      raise(StatusCode::invalid_operand,
            fmt::format("norm: {}, {}", name_of_type(given_.norm), expected));
    if (nb::len(given_.norm) != 2)
      raise(StatusCode::invalid_operand,
            fmt::format("norm: {} values, {}", nb::len(given_.norm), expected));
    rare.scale_object = given_.norm[0], rare.shift_object = given_.norm[1];
    called_python_ =
        !PyTuple_CheckExact(given_.norm.ptr()) && !PyList_CheckExact(given_.norm.ptr());
    rare.scale.take(rare.scale_object, "norm[0]", Access::read, device_, stream_);
    rare.shift.take(rare.shift_object, "norm[1]", Access::read, device_, stream_);
  }

  /// Where taking an operand ran code in Python, which may have changed another.
  void check_unchanged() const {
    using Taken = std::tuple<const Array&, nb::handle, const char*>;
    const std::array<Taken, 3> usual{Taken{x_, given_.x, "x"}, Taken{bias_, given_.bias, "bias"},
                                     Taken{y_.given, given_.out, "out"}};
    const auto called = [](const auto& all) {
      return std::any_of(all.begin(), all.end(),
                         [](const Taken& one) { return std::get<0>(one).called_python(); });
    };
    const auto check = [](const auto& all) {
      for (const auto& [array, object, name] : all) array.check_unchanged(object, name);
    };
    if (!rare_) {
      if (called(usual)) check(usual);
      return;
    }
    const Rare& rare = *rare_;
    const std::array<Taken, 7> others{Taken{rare.scale, rare.scale_object, "norm[0]"},
                                      Taken{rare.shift, rare.shift_object, "norm[1]"},
                                      Taken{rare.before, given_.membrane, "membrane"},
                                      Taken{rare.after, given_.membrane_out, "membrane_out"},
                                      Taken{rare.pre.given, given_.pre, "pre"},
                                      Taken{rare.act.given, given_.act, "act"},
                                      Taken{rare.idx.given, given_.idx, "idx"}};
    if (called_python_ || called(usual) || called(others)) check(usual), check(others);
  }

  void find_n() {
    // Where x has another rank or device than it should, the plan's own error says so.
    const std::size_t axis = stage_.act.is_neuron() && !stage_.hold ? 1 : 0;
    if (x_.view.rank == static_cast<int>(axis) + 4 && x_.view.device == device_)
      n_ = x_.view.shape.at(axis);
    if (n_ < 0 || n_ > stage_.n)
      raise(StatusCode::invalid_operand,
            fmt::format("x: {}, {} images; expected at most the plan's {}. Make a plan with that "
                        "n, or call it for fewer images at a time.",
                        describe(x_.view), n_, stage_.n));
  }

  void prepare_outputs() {
    prepare(y_, given_.out, "out", self_.y_dtype_, self_.y_shape_, self_.y_);
    const Keep& keep = stage_.keep;
    if (keep.any()) {
      const std::vector<Index> kept = convoy::pre_shape(stage_);
      if (keep.pre || !given_.pre.is_none())
        prepare(rare_->pre, given_.pre, "pre", self_.y_dtype_, kept, self_.kept_);
      if (keep.act || !given_.act.is_none())
        prepare(rare_->act, given_.act, "act", self_.y_dtype_, kept, self_.kept_);
      if (keep.idx || !given_.idx.is_none())
        prepare(rare_->idx, given_.idx, "idx", DType::i32, self_.y_shape_, self_.y_);
    } else if (!given_.pre.is_none() || !given_.act.is_none() || !given_.idx.is_none()) {
      raise(StatusCode::invalid_operand,
            fmt::format("pre, act or idx: found an array, expected None: {} keeps nothing. Add "
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
  Array x_, bias_;
  std::optional<Rare> rare_;
  bool first_ = false;  // x calls its axes channels first
  bool called_python_ = false;
  Index n_ = 1;
  Output y_;
};

nb::object PythonPlan::run(const Given& given) {
  const Running running(runs_);
  return Call(*this, given).run();
}

}  // namespace convoy::python
