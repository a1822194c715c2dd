#include "plan/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/gpu_timing.hpp"
#include "core/measure.hpp"
#include "math/half.hpp"

namespace convoy {
namespace {

// splitmix64: a value a step, good in all bits, and the same on every platform.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// Near enough to normal for timing: the sum of four uniform bytes' worth, mean 0, deviation
// `scale`.
float next_normal(std::uint64_t& state, float scale) {
  const std::uint64_t bits = next(state);
  const auto part = [&](int shift) { return static_cast<float>((bits >> shift) & 0xffff); };
  return (part(0) + part(16) + part(32) + part(48) - 131070.0F) * (scale / 37837.0F);
}

void fill(Tensor& tensor, std::uint64_t seed, float scale) {
  constexpr Index drawn = 1'048'583;  // a prime, repeated: no two rows or images are alike
  const DType dtype = tensor.view().dtype;
  const Index count = tensor.elements();
  for (Index i = 0; i < std::min(count, drawn); ++i) {
    switch (dtype) {
      case DType::f32:
        tensor.data<float>()[i] = next_normal(seed, scale);
        break;
      case DType::f16:
        tensor.data<std::uint16_t>()[i] = math::float_to_half(next_normal(seed, scale));
        break;
      case DType::bf16:
        tensor.data<std::uint16_t>()[i] = math::float_to_bfloat(next_normal(seed, scale));
        break;
      case DType::u8:
        tensor.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(next(seed) >> 56);
        break;
      case DType::i32:
        break;  // no operand's: idx is written
    }
  }
  const std::size_t size = size_of(dtype);
  for (Index done = drawn; done < count; done += drawn)
    std::memcpy(tensor.data<char>() + static_cast<std::size_t>(done) * size, tensor.data<char>(),
                static_cast<std::size_t>(std::min(drawn, count - done)) * size);
}

}  // namespace

RandomOperands::RandomOperands(const Stage& stage, std::uint64_t seed, const Machine& machine)
    : x(stage.dtype, x_shape(stage)), weights(DType::f32, w_shape(stage)) {
  const Device device = machine.device;
  const bool gpu = device.kind == DeviceKind::cuda;
  const DType out = stage.output_dtype(gpu);
  fill(x, seed, 1);
  fill(weights, seed + 1, 1.0F / std::sqrt(static_cast<float>(shapes_of(stage).gemm_k)));
  if (stage.bias) {
    bias = Tensor(DType::f32, {stage.k});
    fill(bias, seed + 2, 0.5F);
  }
  if (stage.norm) {
    norm_scale = Tensor(DType::f32, {stage.c});
    norm_shift = Tensor(DType::f32, {stage.c});
    fill(norm_scale, seed + 3, stage.dtype == DType::u8 ? 1.0F / 128 : 1.0F);
    fill(norm_shift, seed + 4, 0.5F);
  }
  if (gpu) {
    for (Tensor* drawn : {&x, &bias, &norm_scale, &norm_shift})
      if (drawn->view()) *drawn = drawn->to(device);
  }
  y = Tensor(out, y_shape(stage), device);
  if (stage.keep.pre) pre = Tensor(out, pre_shape(stage), device);
  if (stage.keep.act) act = Tensor(out, pre_shape(stage), device);
  if (stage.keep.idx) idx = Tensor(DType::i32, y_shape(stage), device);
  if (stage.act.is_neuron()) {
    membrane_in = Tensor(DType::f32, membrane_shape(stage), device);
    membrane_out = Tensor(DType::f32, membrane_shape(stage), device);
  }
  if (!gpu) return;
  constexpr std::size_t most_sets = 64;
  const std::size_t enough = 3 * machine.l2_bytes;
  while ((x.bytes() + y.bytes()) * sets() < enough && sets() < most_sets) {
    more_x.push_back(x.clone());
    more_y.emplace_back(out, y_shape(stage), device);
  }
}

Operands RandomOperands::operands(const Stage& stage, std::size_t set) {
  Operands all;
  all.x = set == 0 ? x : more_x[set - 1];
  all.y = set == 0 ? y : more_y[set - 1];
  if (stage.bias) all.bias = bias;
  if (stage.norm) all.norm_scale = norm_scale, all.norm_shift = norm_shift;
  if (stage.keep.pre) all.pre = pre;
  if (stage.keep.act) all.act = act;
  if (stage.keep.idx) all.idx = idx;
  if (stage.act.is_neuron()) all.membrane_in = membrane_in, all.membrane_out = membrane_out;
  return all;
}

double bytes_of_operands(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  const auto bytes = [](Index elements, DType dtype) {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  };
  const DType out = stage.output_dtype();
  double sum = bytes(shapes.x_elements, stage.dtype) + bytes(shapes.w_elements, DType::f32) +
               bytes(shapes.y_elements, out);
  if (stage.keep.pre) sum += bytes(shapes.pre_elements, out);
  if (stage.keep.act) sum += bytes(shapes.pre_elements, out);
  if (stage.keep.idx) sum += bytes(shapes.y_elements, DType::i32);
  if (stage.act.is_neuron()) sum += 2 * bytes(shapes.gemm_m * stage.k, DType::f32);
  return sum;
}

Machine measured(Machine machine) {
  if (machine.device.kind != DeviceKind::cpu) return machine;
  machine.peak_flops = machine.memory_bandwidth = 0;
  for (int i = 0; i < 3; ++i) {
    machine.peak_flops = std::max(machine.peak_flops, measure_peak_flops(machine.threads));
    machine.memory_bandwidth =
        std::max(machine.memory_bandwidth, measure_copy_bandwidth(machine.threads));
  }
  return machine;
}

double time_once(gpu::Graph& graph, const gpu::Graph::Enqueue& one) {
  double once = graph.run(one);
  for (int i = 0; i < 3 && once < 0.1; ++i) once = std::min(once, graph.run(one));
  return once;
}

Replays choose_replays(double once, std::size_t sets, double seconds) {
  constexpr double enough = 24e-3;      // seconds of a graph: its start takes some 10 microseconds
  constexpr std::size_t launches = 24;  // of a graph, for stages of up to a millisecond
  constexpr double patience = 0.25;     // seconds, where less was asked for
  const std::size_t all = std::max(launches, sets);
  const double wanted = std::ceil(std::max(enough, seconds / 4) / std::max(once, 1e-9));
  Replays replays;
  if (wanted < static_cast<double>(all))
    replays.runs = static_cast<std::size_t>(std::max(1.0, wanted));
  else
    replays.runs = all;
  const double graph = once * static_cast<double>(replays.runs);
  replays.least = 3 * graph <= std::max(seconds, patience) ? 3 : 1;
  return replays;
}

Timing summary(Samples samples) {
  std::vector<double>& seconds = samples.seconds;
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), samples.runs};
}

namespace {

Samples sample_replays(Device device, std::size_t sets,
                       const std::function<void(Stream, std::size_t)>& enqueue, double seconds) {
  gpu::Graph graph(device);
  const auto one = [&](Stream stream) { enqueue(stream, 0); };
  const Replays replays = choose_replays(time_once(graph, one), sets, seconds);
  graph.capture([&](Stream stream) {
    for (std::size_t i = 0; i < replays.runs; ++i) enqueue(stream, i % sets);
  });
  if (replays.least > 1) graph.replay(1);  // not counted: the first finds cold caches
  std::vector<double> times;
  for (double spent = 0; times.size() < static_cast<std::size_t>(replays.least) ||
                         (spent < seconds && times.size() < 100000);) {
    const double replay = graph.replay(1);
    spent += replay;
    times.push_back(replay / static_cast<double>(replays.runs));
  }
  const int runs = static_cast<int>(times.size() * replays.runs);
  return {std::move(times), runs};
}

}  // namespace

Samples sample_calls(Device device, std::size_t sets,
                     const std::function<void(Stream, std::size_t)>& call, double seconds) {
  if (device.kind == DeviceKind::cuda) return sample_replays(device, sets, call, seconds);
  using Clock = std::chrono::steady_clock;
  std::size_t set = 0;
  call({}, 0);
  std::vector<double> times;
  const auto begin = Clock::now();
  auto last = begin;
  do {
    set = set + 1 == sets ? 0 : set + 1;
    call({}, set);
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  } while (times.size() < 3 || (std::chrono::duration<double>(last - begin).count() < seconds &&
                                times.size() < 100000));
  const int runs = static_cast<int>(times.size());
  return {std::move(times), runs};
}

Tensor workspace_for_streams(std::size_t bytes, Device device) {
  if (bytes == 0 || device.kind == DeviceKind::cpu) return {};
  return {DType::u8, {static_cast<Index>(bytes)}, device};
}

Timing time_runs(const Plan& plan, RandomOperands& random, double seconds) {
  Tensor workspace = workspace_for_streams(plan.workspace_bytes(), plan.device());
  std::vector<Operands> operands;
  for (std::size_t set = 0; set < random.sets(); ++set) {
    operands.push_back(random.operands(plan.stage(), set));
    operands.back().workspace = workspace.data<void>();
  }
  return summary(sample_calls(
      plan.device(), random.sets(),
      [&](Stream stream, std::size_t set) { plan.run(operands[set], stream).or_throw(); },
      seconds));
}

}  // namespace convoy
