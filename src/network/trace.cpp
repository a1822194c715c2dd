// A run that keeps what each layer gives.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "math/half.hpp"
#include "network/program.hpp"

namespace convoy {

class Network::Impl::Trace {
 public:
  Trace(const Impl& network, Index n) : network_(network), n_(n) {
    for (const Step& step : network_.steps)
      for (std::size_t i = step.first; i < step.first + step.count; ++i)
        outputs_.push_back(output_of(step, i));
  }

  /// Images of the network's type; the f32 outputs of every layer, on the host.
  std::vector<Tensor> run(const ConstTensorView& images) {
    results_.push_back(network_.input_of(on_device(images), network_.text.dtype, n_, {}));
    for (const Step& step : network_.steps) {
      const void* x = input_of(step);
      if (step.apart.empty()) {
        run_whole(step, x);
      } else {
        for (const Step& one : step.apart) x = run_kept(one, x, nullptr);
      }
      results_.push_back(kept_.back().view().data);
    }
    return std::move(outputs_);
  }

 private:
  /// For what layer i, one of the step's, gives.
  Tensor output_of(const Step& step, std::size_t i) const {
    const network::Layer& layer = network_.layer(i);
    const Shapes shapes = shapes_of(layer.stage);
    const bool mean = step.mean && i + 1 == step.first + step.count;
    const Index times = layer.timed && !mean ? network_.graph.steps : 1;
    return Tensor(DType::f32, {times, n_, shapes.out_h, shapes.out_w, layer.stage.k});
  }

  /// On the network's device, kept to the end: a tensor has memory of its own here.
  void* make(DType type, Index values) {
    kept_.emplace_back(type, std::vector<Index>{values}, network_.machine.device);
    return kept_.back().view().data;
  }

  const void* on_device(const ConstTensorView& images) {
    if (!network_.on_gpu() || !(images.device == Device{})) return images.data;
    const Index values = n_ * network_.input_values;
    void* const there = make(network_.text.dtype, values);
    copy_tensor(ConstTensorView(images.data, network_.text.dtype, {values}), kept_.back());
    return there;
  }

  const void* input_of(const Step& step) {
    if (step.parts.empty()) return results_[static_cast<std::size_t>(step.in)];
    const Part& any = step.parts.front();
    void* const all = make(network_.text.layer_type(), n_ * any.pixels * any.all);
    for (const Part& part : step.parts)
      network_.put(part, n_, results_[static_cast<std::size_t>(part.tensor)], all, {});
    return all;
  }

  /// What the step gives, kept there and as the output of its last layer.
  const void* run_kept(const Step& step, const void* x, float* const* inner) {
    Tensor& output = outputs_[step.first + step.count - 1];
    const Index values = output.elements();
    void* const y = make(step.mean ? DType::f32 : network_.text.layer_type(), values);
    network_.run_step(step, n_, x, y, nullptr, inner, nullptr, {}).or_throw();
    const Tensor here = kept_.back().to({});
    for (Index v = 0; v < values; ++v)
      output.data<float>()[v] = math::load(here.view().dtype, here.view().data, v);
    return y;
  }

  /// A step whose kernel gives what lies between its layers, too.
  void run_whole(const Step& step, const void* x) {
    std::vector<float*> inner;
    std::vector<Tensor> there;  // on a GPU
    for (std::size_t i = 0; i + 1 < step.count; ++i) {
      Tensor& output = outputs_[step.first + i];
      if (network_.on_gpu())
        there.push_back(Tensor(DType::f32, {output.elements()}, network_.machine.device));
      inner.push_back(network_.on_gpu() ? there.back().data<float>() : output.data<float>());
    }
    run_kept(step, x, inner.data());
    for (std::size_t i = 0; i < there.size(); ++i) {
      const Tensor here = there[i].to({});
      std::copy_n(here.data<float>(), here.elements(), outputs_[step.first + i].data<float>());
    }
  }

  const Impl& network_;
  Index n_;
  std::vector<Tensor> outputs_, kept_;
  std::vector<const void*> results_;  // by the numbers of tensors; 0: the input
};

std::vector<Tensor> Network::Impl::trace(const ConstTensorView& images) const {
  const std::string wrong = check({images, {}, {}});
  if (!wrong.empty()) throw Error(wrong, StatusCode::invalid_operand);
  if (of_other_type(images))
    throw Error(
        fmt::format("images: {}, expected {} to trace.", describe(images), to_text(text.dtype)),
        StatusCode::invalid_operand);
  const Index n = images.shape[0];
  if (n < 1 || n > options.batch)
    throw Error(fmt::format("images: {}, expected 1 to {} (the batch) to trace.", n, options.batch),
                StatusCode::invalid_operand);
  if (!busy.take()) throw Error(is_running, StatusCode::busy);
  const Busy release{busy};
  return Trace(*this, n).run(images);
}

}  // namespace convoy
