// convoy._core._RepackGroup: the weights of a fused model's stages on a GPU, packed together.
#include "plan/repack_group.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "core/dtype.hpp"
#include "plan.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

/// A group, and the plans in it. It keeps the plans alive, but no tensor: the caller sees to that.
class PythonGroup {
 public:
  explicit PythonGroup(Index most) : most_(most) {}

  /// norm: None, or the convolution's bias, gamma, beta, mean, variance and the shift to write.
  bool add(nb::handle plan_object, nb::handle weights, nb::handle norm, float eps) {
    auto& plan = nb::cast<PythonPlan&>(plan_object);
    const Device device = plan.plan.device();
    const Stream stream = stream_of(nb::none(), weights, device);
    Array array;
    take_weights(array, weights, "kcrs", device, stream);
    gpu::FoldedNorm folded;
    if (!norm.is_none() && !take_norm(nb::cast<nb::tuple>(norm), plan.plan, stream, folded))
      return false;
    folded.eps = eps;
    if (!group_) group_.emplace(device, most_);
    bool added = false;
    plan.change_between_runs([&] { added = group_->add(plan.plan, array.view, folded, stream); });
    if (added) plans_.emplace_back(nb::borrow(plan_object), &plan);
    return added;
  }

  /// like: a tensor of the library whose current stream is meant.
  void enqueue(nb::handle like) {
    if (!group_) return;
    const auto runs = [](const auto& one) { return one.second->is_running(); };
    while (std::any_of(plans_.begin(), plans_.end(), runs)) {
      const nb::gil_scoped_release released;
      std::this_thread::yield();
    }
    group_->enqueue(stream_of(nb::none(), like, plans_.front().second->plan.device()));
  }

 private:
  static bool take_norm(const nb::tuple& given, const Plan& plan, Stream stream,
                        gpu::FoldedNorm& norm) {
    norm.filters = plan.stage().k;
    const std::array vectors{&norm.bias, &norm.gamma, &norm.beta, &norm.mean, &norm.variance};
    const auto take = [&](nb::handle one, Access access, gpu::FoldedNorm::Vector& to) {
      Array array;
      array.take(one, "norm", access, plan.device(), stream);
      const TensorView& view = array.view;
      to = {view.data, view.dtype};
      return view.rank == 1 && view.shape[0] == norm.filters && view.contiguous() &&
             view.device == plan.device() &&
             (view.dtype == DType::f32 || view.dtype == DType::f16 || view.dtype == DType::bf16);
    };
    for (std::size_t i = 0; i < vectors.size(); ++i)
      if (!given[i].is_none() && !take(given[i], Access::read, *vectors.at(i))) return false;
    gpu::FoldedNorm::Vector shift;
    if (!take(given[vectors.size()], Access::write, shift) || shift.type != DType::f32)
      return false;
    norm.shift = static_cast<float*>(const_cast<void*>(shift.data));
    const bool folds = norm.mean.data && norm.variance.data;
    return folds || (!norm.mean.data && !norm.variance.data && norm.bias.data);
  }

  Index most_;
  std::vector<std::pair<nb::object, PythonPlan*>> plans_;  // declared before what reads them
  std::optional<RepackGroup> group_;
};

}  // namespace

void define_repack_group(nb::module_& module) {
  nb::class_<PythonGroup>(
      module, "_RepackGroup",
      "The weights of many plans on one GPU, which two kernels compare and pack "
      "together. The caller keeps the tensors and their memory alive.")
      .def(nb::init<Index>(), nb::arg("most"))
      .def("add", &PythonGroup::add, nb::arg("plan"), nb::arg("weights"), nb::arg("norm").none(),
           nb::arg("eps"),
           "Adds a plan with weights [K, C/groups, R, S]. norm: None, or bias, gamma, beta, mean, "
           "variance and the f32 tensor that receives the folded bias, [K] each; bias, gamma and "
           "beta may be None, and all but the bias if there is no norm. Returns False if a group "
           "cannot pack these.")
      .def("enqueue", &PythonGroup::enqueue, nb::arg("like"),
           "Enqueues the comparison and the packing on the current stream of the library of "
           "`like`, a tensor on the plans' GPU.");
}

}  // namespace convoy::python
