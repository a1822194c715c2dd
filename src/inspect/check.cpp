#include "inspect/check.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/printable.hpp"
#include "inspect/dump_files.hpp"
#include "network/convert.hpp"

namespace convoy::inspect {
namespace {

/// What names mean: which operators, and which blocks.
struct Chosen {
  std::vector<bool> all, blocks;
};

Error unknown(const Operators& operators, const std::string& name) {
  constexpr std::size_t most_names = 60;  // of a large network a message shows the first
  std::string known;
  for (std::size_t i = 0; i < std::min(operators.all.size(), most_names); ++i)
    known += operators.all[i].name + ", ";
  if (operators.all.size() > most_names) known += "..., ";
  return Error(
      fmt::format("operator \"{}\": the network has {}fuse1 to fuse{}. Name some of them, or all, "
                  "or none.",
                  printable(name), printable(known, 2000), operators.blocks.size()));
}

Chosen chosen(const Operators& operators, const std::vector<std::string>& names) {
  Chosen result{std::vector<bool>(operators.all.size()),
                std::vector<bool>(operators.blocks.size())};
  const auto mark = [](const std::vector<Operator>& all, std::vector<bool>& marks,
                       const std::string& name) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Operator& op) { return op.name == name; });
    if (found == all.end()) return false;
    marks[static_cast<std::size_t>(found - all.begin())] = true;
    return true;
  };
  for (const std::string& name : names) {
    // A layer may be called "all": an operator comes first.
    if (mark(operators.all, result.all, name) || mark(operators.blocks, result.blocks, name))
      continue;
    if (name == "all")
      result.all.assign(operators.all.size(), true);
    else if (name != "none")
      throw unknown(operators, name);
  }
  return result;
}

/// One network, its images, and the plans of the operators that Convoy runs.
class Check {
 public:
  Check(const Operators& operators, const ConstTensorView& images, const CheckOptions& options)
      : operators_(operators),
        options_(options),
        checked_(chosen(operators, options.checked)),
        timed_(chosen(operators, options.timed)),
        threads_(options.plan.threads > 0 ? options.plan.threads : default_threads()),
        oracle_(threads_),
        reference_(options.reference ? *options.reference : oracle_),
        n_(images.shape[0]),
        images_(first_input(operators.text, images, threads_)),
        plans_(operators.all.size()),
        block_plans_(operators.blocks.size()) {}

  CheckReport run() {
    report_.images = n_;
    report_.reference = all_by_reference(operators_, images_, reference_);
    for (std::size_t b = 0; b < operators_.blocks.size(); ++b) {
      const Operator& block = operators_.blocks[b];
      const std::size_t first = operators_.first_of(b);
      for (std::size_t i = first; i <= block.gives; ++i)
        if (checked_.all[i] || timed_.all[i])
          add(operators_.all[i], i, checked_.all[i], timed_.all[i], plans_[i]);
      if (checked_.blocks[b] || timed_.blocks[b])
        add(block, first, checked_.blocks[b], timed_.blocks[b], block_plans_[b]);
    }
    predict();
    return std::move(report_);
  }

 private:
  /// Runs operators [first, op.gives] as one plan on the reference's input.
  void add(const Operator& op, std::size_t first, bool checked, bool timed,
           std::unique_ptr<Planned>& plan) {
    Tensor joined;
    const ConstTensorView x = input_of(op, report_.reference, images_, joined);
    plan = std::make_unique<Planned>(op, operators_.steps(), n_, options_.plan);
    CheckedOperator one;
    one.op = &op;
    one.kernel = plan->kernel();
    one.shape = output_shape(op, operators_.steps(), n_);
    one.checked = checked;
    one.timed = timed;
    one.values = plan->run(x).y;
    if (timed) {
      one.seconds = plan->time();
      for (std::size_t i = first; i <= op.gives; ++i)
        one.reference_seconds += report_.reference[i].seconds;
    }
    if (checked) one.result = judge(op, one);
    report_.operators.push_back(std::move(one));
  }

  Comparison judge(const Operator& op, const CheckedOperator& one) const {
    const Operator& last = operators_.all[op.gives];
    const auto values = [](const Tensor& tensor) {
      return std::span<const float>(tensor.data<float>(),
                                    static_cast<std::size_t>(tensor.elements()));
    };
    SpikeRule rule;
    const std::size_t neuron = operators_.neuron_of(op.gives);
    if (neuron != Operators::none)
      rule = {static_cast<double>(operators_.all[neuron].stage.act.threshold()),
              values(report_.reference[neuron].membrane), last.stage};
    return compare(values(one.values), values(report_.reference[op.gives].y), one.shape,
                   options_.tolerance, neuron != Operators::none ? &rule : nullptr,
                   options_.most_worst);
  }

  /// The last operator's output where checked operators are Convoy's, a block's before its parts'.
  Tensor mixed() {
    std::vector<Output> outputs(operators_.all.size());
    for (std::size_t b = 0; b < operators_.blocks.size(); ++b) {
      Tensor joined;
      const Operator& block = operators_.blocks[b];
      if (checked_.blocks[b]) {
        outputs[block.gives] = block_plans_[b]->run(input_of(block, outputs, images_, joined));
        continue;
      }
      for (std::size_t i = operators_.first_of(b); i <= block.gives; ++i) {
        const Operator& op = operators_.all[i];
        const ConstTensorView x = input_of(op, outputs, images_, joined);
        outputs[i] =
            checked_.all[i] ? plans_[i]->run(x) : reference_.run(op, operators_.steps(), n_, x);
      }
    }
    return std::move(outputs.back().y);
  }

  struct Outputs {
    std::vector<float> mean;  // [N,classes]
    std::vector<std::int32_t> labels;
  };
  Outputs outputs_of(const Tensor& y) {
    const Index steps = y.view().shape[0], classes = y.view().shape[4];
    Outputs outputs{std::vector<float>(static_cast<std::size_t>(n_ * classes)),
                    std::vector<std::int32_t>(static_cast<std::size_t>(n_))};
    network::mean_and_labels(threads_, DType::f32, y.data<float>(), steps, n_, classes,
                             outputs.mean.data(), outputs.labels.data());
    return outputs;
  }

  /// Whether the image has a membrane of the reference at the threshold.
  bool at_threshold(Index image) const {
    for (std::size_t i = 0; i < operators_.all.size(); ++i) {
      const Tensor& membrane = report_.reference[i].membrane;
      if (!membrane.view()) continue;
      const double threshold = static_cast<double>(operators_.all[i].stage.act.threshold());
      const double near = SpikeRule{.threshold = threshold, .membrane = {}, .stage = {}}.near();
      const Index steps = membrane.view().shape[0], values = membrane.elements() / steps / n_;
      for (Index t = 0; t < steps; ++t)
        for (Index v = 0; v < values; ++v) {
          const float value = membrane.data<float>()[(t * n_ + image) * values + v];
          if (std::abs(static_cast<double>(value) - threshold) <= near) return true;
        }
    }
    return false;
  }

  void predict() {
    const auto any = [](const std::vector<bool>& marks) {
      return std::find(marks.begin(), marks.end(), true) != marks.end();
    };
    const Tensor& expected = report_.reference.back().y;
    if (expected.view().shape[2] != 1 || expected.view().shape[3] != 1) return;
    Predictions& found = report_.predictions;
    found.any = true;
    const Outputs reference = outputs_of(expected);
    found.reference = reference.labels;
    const bool by_convoy = any(checked_.all) || any(checked_.blocks);
    found.ours = by_convoy ? outputs_of(mixed()).labels : reference.labels;
    const auto classes = static_cast<std::size_t>(expected.view().shape[4]);
    for (std::size_t i = 0; i < found.ours.size(); ++i) {
      if (found.ours[i] == found.reference[i]) continue;
      found.differing.push_back(static_cast<Index>(i));
      const float* const row = reference.mean.data() + i * classes;
      const float margin = row[found.reference[i]] - row[found.ours[i]];
      if (at_threshold(static_cast<Index>(i)) || margin < 1e-5F)
        found.excused.push_back(static_cast<Index>(i));
    }
  }

  const Operators& operators_;
  const CheckOptions& options_;
  Chosen checked_, timed_;
  Threads threads_;
  OracleReference oracle_;
  Reference& reference_;
  Index n_;
  Tensor images_;
  std::vector<std::unique_ptr<Planned>> plans_, block_plans_;
  CheckReport report_;
};

}  // namespace

bool CheckReport::passed() const {
  return predictions.differing.size() == predictions.excused.size() &&
         std::all_of(operators.begin(), operators.end(),
                     [](const CheckedOperator& one) { return one.result.off == 0; });
}

CheckReport check(const Operators& operators, const ConstTensorView& images,
                  const CheckOptions& options) {
  return Check(operators, images, options).run();
}

void expect_known(const Operators& operators, const std::vector<std::string>& names) {
  chosen(operators, names);
}

void save(const std::string& folder, const std::string& model, Index image,
          const Operators& operators, const CheckReport& report) {
  for (const Side side : {Side::convoy, Side::reference}) {
    std::vector<DumpedValues> all;
    for (const CheckedOperator& one : report.operators) {
      if (!one.checked) continue;
      all.push_back({dumped(operators, *one.op, report.images)});
      DumpedValues& values = all.back();
      values.values = side == Side::convoy ? &one.values : &report.reference[one.op->gives].y;
      const std::size_t neuron = operators.neuron_of(one.op->gives);
      if (neuron != Operators::none) values.membrane = &report.reference[neuron].membrane;
    }
    if (!all.empty()) write_dumps(folder, side, model, image, all);
  }
}

}  // namespace convoy::inspect
