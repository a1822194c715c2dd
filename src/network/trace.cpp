// A run that keeps what each layer gives.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "math/half.hpp"
#include "network/impl.hpp"

namespace convoy {

using network::ConvertStep;
using network::CopyStep;
using network::KernelStep;
using network::Located;
using network::MeanStep;

class Network::Impl::Trace {
 public:
  Trace(const Impl& network, network::Context& context, Index n)
      : program_(network.program), context_(context), n_(n), values_(program_.places.size()) {
    pass_.n = n;
    for (const network::Step& step : program_.steps)
      if (const auto* kernel = std::get_if<KernelStep>(&step))
        for (std::size_t i = kernel->first; i < kernel->first + kernel->count; ++i)
          outputs_.push_back(output_of(*kernel, i));
  }

  /// Images of the network's type; the f32 outputs of every layer, on the host.
  std::vector<Tensor> run(const ConstTensorView& images) {
    context_.reserve(n_);
    images_ = on_device(images);
    pass_.inputs = {&images_, 1};
    values_[program_.graph.inputs[0]] = dense(program_.graph.inputs[0], images_);
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      context_.use_workspace(i);
      std::visit([&](const auto& step) { run_step(step); }, program_.steps[i]);
    }
    return std::move(outputs_);
  }

 private:
  /// For what layer i, one of the step's, gives.
  Tensor output_of(const KernelStep& step, std::size_t i) const {
    const bool mean = step.mean && i + 1 == step.first + step.count;
    const graph::ValueId id = mean ? step.y : program_.layer(i).out;
    const graph::Value& value = program_.value(id);
    return Tensor(DType::f32, {program_.steps_of(id), n_, value.h(), value.w(), value.channels()});
  }

  Located dense(graph::ValueId id, const void* data) const {
    return {const_cast<void*>(data), program_.value(id).channels()};
  }
  /// Memory of a value's own, kept to the end: nothing is written twice here.
  Located make(graph::ValueId id) {
    kept_.emplace_back(program_.value(id).type,
                       std::vector<Index>{n_ * program_.image_elements(id)},
                       program_.machine.device);
    return values_[id] = dense(id, kept_.back().view().data);
  }
  /// A flattened image is the image's memory.
  Located read(graph::ValueId id) {
    if (values_[id].data) return values_[id];
    for (const graph::Node& node : program_.graph.nodes)
      if (node.out == id && node.as<graph::Flatten>())
        return values_[id] = dense(id, read(node.in[0]).data);
    return {};
  }
  /// A concatenation's memory, made by the first of its parts.
  Located there(graph::ValueId id) { return values_[id].data ? values_[id] : make(id); }

  const void* on_device(const ConstTensorView& images) {
    if (!program_.on_gpu() || !(images.device == Device{})) return images.data;
    kept_.emplace_back(images.dtype, std::vector<Index>{images.elements()},
                       program_.machine.device);
    copy_tensor(ConstTensorView(images.data, images.dtype, {images.elements()}), kept_.back());
    return kept_.back().view().data;
  }

  void run_step(const ConvertStep& step) {
    context_.convert(step, pass_, read(step.x).data, make(step.y).data).or_throw();
  }
  void run_step(const CopyStep& step) {
    context_.copy(step, n_, read(step.from), there(step.to), {}).or_throw();
  }
  void run_step(const MeanStep&) {}
  void run_step(const KernelStep& step) {
    gather(step.x);
    if (step.apart.empty()) return run_whole(step);
    for (const KernelStep& one : step.apart) run_kept(one, nullptr);
  }

  /// What a run finds in place as views: parts of a concatenation, a slice.
  void gather(graph::ValueId id) {
    if (read(id).data) return;
    for (const graph::Node& node : program_.graph.nodes) {
      if (node.out != id) continue;
      Index before = 0;
      const auto* slice = node.as<graph::Slice>();
      for (const graph::ValueId part : node.in) {
        gather(part);
        const Index channels = slice ? slice->count : program_.value(part).channels();
        run_step(CopyStep{part, id, slice ? slice->first : 0, before, channels, 0});
        before += channels;
      }
    }
  }

  /// What the step gives, kept there and as the output of its last layer.
  void run_kept(const KernelStep& step, float* const* inner) {
    Tensor& output = outputs_[step.first + step.count - 1];
    const Located x = read(step.x), y = make(step.y);
    context_.run_kernel(step, pass_, x, y, inner).or_throw();
    const Tensor here = kept_.back().to({});
    for (Index v = 0; v < output.elements(); ++v)
      output.data<float>()[v] = math::load(here.view().dtype, here.view().data, v);
  }

  /// A step whose kernel gives what lies between its layers, too.
  void run_whole(const KernelStep& step) {
    std::vector<float*> inner;
    std::vector<Tensor> there;  // on a GPU
    for (std::size_t i = 0; i + 1 < step.count; ++i) {
      Tensor& output = outputs_[step.first + i];
      if (program_.on_gpu())
        there.push_back(Tensor(DType::f32, {output.elements()}, program_.machine.device));
      inner.push_back(program_.on_gpu() ? there.back().data<float>() : output.data<float>());
    }
    run_kept(step, inner.data());
    for (std::size_t i = 0; i < there.size(); ++i) {
      const Tensor here = there[i].to({});
      std::copy_n(here.data<float>(), here.elements(), outputs_[step.first + i].data<float>());
    }
  }

  const network::Program& program_;
  network::Context& context_;
  Index n_;
  network::Pass pass_;
  const void* images_ = nullptr;
  std::vector<Tensor> outputs_, kept_;
  std::vector<Located> values_;  // that are there by now
};

std::vector<Tensor> Network::Impl::trace(const ConstTensorView& images) const {
  const std::string wrong = check({images, {}, {}});
  if (!wrong.empty()) throw Error(wrong);
  if (of_other_type(images))
    throw Error(
        fmt::format("images: {}, expected {} to trace.", describe(images), to_text(input().type)));
  const Index n = images.shape[0], most = program.at_once;
  if (n < 1 || n > most)
    throw Error(fmt::format("images: {}, expected 1 to {} (the batch) to trace.", n, most));
  network::Contexts::Taken context = contexts.take({});
  if (!context) throw Error(none_free);
  std::vector<Tensor> all = Trace(*this, *context, n).run(images);
  context.finished();
  return all;
}

}  // namespace convoy
