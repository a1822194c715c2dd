#include "bench/gpu_runs.hpp"

#include <algorithm>

#include "bench/check.hpp"
#include "core/dtype.hpp"
#include "core/gpu.hpp"
#include "plan/select.hpp"

namespace convoy::bench {
namespace {

std::size_t rounded_bytes(const TensorDescriptor& view) {
  const std::size_t bytes = static_cast<std::size_t>(view.elements()) * size_of(view.dtype);
  return (bytes + 255) / 256 * 256;
}
/// A tensor like another one, in a block.
TensorView at(Tensor& block, std::size_t offset, const TensorDescriptor& like) {
  TensorView view;
  static_cast<TensorDescriptor&>(view) = like;
  view.data = block.data<char>() + offset;
  view.device = block.view().device;
  return view;
}

/// The check runs on the default stream, what is timed on the graph's.
PlanOptions on_two_streams(PlanOptions options) {
  options.concurrent_runs = 2;
  return options;
}

}  // namespace

GpuRuns::GpuRuns(const Stage& stage, const Problem& problem, const PlanOptions& options,
                 double seconds, bool apart)
    : Runs(Plan(stage, problem.w, on_two_streams(options))),
      machine_(machine_for(options)),
      one_x_(problem.operands.x),
      one_y_(problem.operands.y),
      x_bytes_(rounded_bytes(one_x_)),
      y_bytes_(rounded_bytes(one_y_)),
      graph_(options.device) {
  const Device device = options.device;
  sets_ = std::clamp<std::size_t>(3 * machine_.l2_bytes / (x_bytes_ + y_bytes_) + 1, 8, 512);
  x_ = Tensor(DType::u8, {static_cast<Index>(sets_ * x_bytes_)}, device);
  y_ = Tensor(DType::u8, {static_cast<Index>(sets_ * y_bytes_)}, device);
  copy_tensor(one_x_, at(x_, 0, one_x_));
  for (std::size_t i = 1; i < sets_; ++i)
    copy_tensor(at(x_, 0, one_x_), at(x_, i * x_bytes_, one_x_));

  const auto on_device = [&](const ConstTensorView& host, auto& operand) {
    if (!host) return;
    const std::vector<Index> shape(host.shape.begin(), host.shape.begin() + host.rank);
    kept_.emplace_back(host.dtype, shape, device);
    copy_tensor(host, kept_.back());
    operand = kept_.back();
  };
  const Operands& from = problem.operands;
  on_device(from.bias, fixed_.bias);
  on_device(from.norm_scale, fixed_.norm_scale);
  on_device(from.norm_shift, fixed_.norm_shift);
  on_device(from.pre, fixed_.pre);
  on_device(from.act, fixed_.act);
  on_device(from.idx, fixed_.idx);
  check(stage, problem);
  const auto one = [&](Stream stream) { plan_.run(set(0), stream).or_throw(); };
  replays_ = choose_replays(time_once(graph_, one), sets_, seconds);
  graph_.capture([&](Stream stream) { enqueue(stream, nullptr); });
  if (!apart) return;
  word_ = Tensor(DType::u8, {256}, device);
  apart_.emplace(device, [&](Stream stream) { enqueue(stream, word_.data<char>()); });
}

void GpuRuns::enqueue(Stream stream, void* word) {
  for (std::size_t i = 0; i < replays_.runs; ++i) {
    plan_.run(set(i % sets_), stream).or_throw();
    if (word) gpu::launch_foreign(machine_.device, word, stream);
  }
}

Operands GpuRuns::set(std::size_t i) {
  Operands operands = fixed_;
  operands.x = at(x_, i * x_bytes_, one_x_);
  operands.y = at(y_, i * y_bytes_, one_y_);
  return operands;
}

void GpuRuns::check(const Stage& stage, const Problem& problem) {
  error_ = checked_error(stage, problem.operands, problem.w, plan_, [&] {
    const Operands operands = set(0);
    copy_tensor(one_y_, operands.y);  // the poison
    plan_.run(operands).or_throw();
    copy_tensor(operands.y, one_y_);
  });
}

std::vector<double> GpuRuns::turn(double seconds) {
  return samples_of(graph_, seconds);
}
std::vector<double> GpuRuns::turn_apart(double seconds) {
  return apart_ ? samples_of(*apart_, seconds) : std::vector<double>();
}

std::vector<double> GpuRuns::samples_of(gpu::Graph& graph, double seconds) const {
  const auto runs = static_cast<double>(replays_.runs);
  const double once = std::max(graph.replay(1), 1e-7);
  if (replays_.least == 1) return {once / runs};
  graph.replay(std::max(1, static_cast<int>(seconds / once)));
  const int times = std::max(1, static_cast<int>(seconds / 5 / once));
  std::vector<double> samples;
  for (int i = 0; i < 5; ++i) samples.push_back(graph.replay(times) / times / runs);
  return samples;
}

double GpuRuns::peak_flops() {
  return graph_.clock_hz() * flops_a_cycle();
}

double GpuRuns::flops_a_cycle() const {
  return built_peak(machine_, plan_.stage().dtype) / machine_.clock_hz;
}

double built_peak(const Machine& machine, DType dtype) {
  return facts_of(dtype).tensor_cores ? machine.tensor_flops : machine.peak_flops;
}

double measure_gpu_copy_bandwidth(Device device) {
  constexpr Index bytes = Index{1} << 30;
  Tensor from(DType::u8, {bytes}, device), to(DType::u8, {bytes}, device);
  const gpu::OwnedStream stream(device);
  const auto copies = [&](int times) {
    return gpu::time(device, stream.stream(), [&] {
      for (int i = 0; i < times; ++i) copy_tensor(from, to, stream.stream());
    });
  };
  copies(3);
  return 5 * 2.0 * static_cast<double>(bytes) / copies(5);
}

}  // namespace convoy::bench
