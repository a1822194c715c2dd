#include "inspect/dump.hpp"

namespace convoy::inspect {
namespace {

Index write(const DumpJob& job, Side side, const Operators& operators,
            const std::vector<Output>& outputs, const Tensor& mean) {
  std::vector<DumpedValues> all;
  for (std::size_t i = 0; i < operators.all.size(); ++i) {
    const Operator& op = operators.all[i];
    all.push_back({dumped(operators, op, 1), &outputs[i].y});
    if (op.kind == OperatorKind::neuron) all.back().membrane = &outputs[i].membrane;
  }
  if (!operators.mean.empty()) all.push_back({dumped_mean(operators, 1), &mean});
  write_dumps(job.folder, side, job.model, job.image, all);
  return static_cast<Index>(all.size());
}

/// The outputs of all operators around those of the layers, which the network computed.
std::vector<Output> around(const Operators& operators, std::vector<Tensor> layers,
                           const Tensor& images, const NetworkOptions& options) {
  PlanOptions plan;
  plan.device = options.device;
  plan.threads = options.threads;
  std::vector<Output> outputs(operators.all.size());
  for (std::size_t block = 0; block < operators.blocks.size(); ++block) {
    const std::size_t last = operators.blocks[block].gives;
    for (std::size_t i = operators.first_of(block); i <= last; ++i) {
      const Operator& op = operators.all[i];
      // The network keeps only the mean of a last layer that it averages in a kernel.
      const Index steps = op.timed ? operators.steps() : 1;
      if (i == last && layers[block].view().shape[0] == steps) {
        outputs[i].y = std::move(layers[block]);
        continue;
      }
      Tensor joined;
      const ConstTensorView x = input_of(op, outputs, images, joined);
      outputs[i] = Planned(op, operators.steps(), 1, plan).run(x);
    }
  }
  return outputs;
}

}  // namespace

Index dump_network(const DumpJob& job, network::Model model, const ConstTensorView& image) {
  const Network network(job.model, job.options);
  const Operators operators = operators_of(std::move(model));
  Threads threads(network.threads());
  const Tensor x = first_input(operators.text, image, threads);
  const std::vector<Output> outputs = around(operators, network.trace(image), x, job.options);
  Tensor mean(DType::f32, {1, network.classes()});
  network.run(image, mean, {}).or_throw();
  Tensor shaped;
  if (!operators.mean.empty()) {
    shaped = Tensor(DType::f32, dumped_mean(operators, 1).full_shape());
    copy_tensor(mean, TensorView(shaped.data<float>(), DType::f32, {1, network.classes()}));
  }
  return write(job, Side::convoy, operators, outputs, shaped);
}

Index dump_reference(const DumpJob& job, network::Model model, const ConstTensorView& image) {
  const Operators operators = operators_of(std::move(model));
  Threads threads(job.options.threads > 0 ? job.options.threads : default_threads());
  const Tensor x = first_input(operators.text, image, threads);
  OracleReference oracle(threads);
  const std::vector<Output> outputs = all_by_reference(operators, x, oracle);
  return write(job, Side::reference, operators, outputs,
               operators.mean.empty() ? Tensor() : mean_of(outputs.back().y));
}

}  // namespace convoy::inspect
