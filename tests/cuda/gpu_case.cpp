#include "gpu_case.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "math/half.hpp"

namespace convoy {
namespace {

void draw(Tensor& tensor, Values values, std::mt19937& random, int most, float scale) {
  std::normal_distribution<float> normal(0, scale);
  const DType dtype = tensor.view().dtype;
  for (Index i = 0; i < tensor.elements(); ++i) {
    const int integer = static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most;
    const float value = values == Values::integers ? static_cast<float>(integer) : normal(random);
    if (dtype == DType::u8)
      tensor.data<std::uint8_t>()[i] =
          static_cast<std::uint8_t>(values == Values::integers ? integer + most : random() % 256);
    else
      math::store(dtype, tensor.view().data, i, value);
  }
}

}  // namespace

PlanOptions options_for(Device device, std::string_view kernel, std::string_view tile) {
  PlanOptions options;
  options.device = device;
  options.kernel = kernel;
  options.tile = tile;
  options.use_tuning = false;
  return options;
}

GpuCase::GpuCase(const Stage& given, Values values, Device on) : stage(given), device(on) {
  stage.out = stage.output_dtype(true);
  std::mt19937 random(7);
  const auto drawn = [&](DType dtype, const std::vector<Index>& shape, int most, float scale) {
    Tensor host(dtype, shape);
    draw(host, values, random, most, scale);
    return host;
  };
  x = drawn(stage.dtype, x_shape(stage), 2, 1).to(device);
  w = drawn(DType::f32, w_shape(stage), 2,
            1.0F / std::sqrt(static_cast<float>(shapes_of(stage).gemm_k)));
  if (stage.bias) bias = drawn(DType::f32, {stage.k}, 3, 1).to(device);
  if (stage.norm) norm_scale = drawn(DType::f32, {stage.c}, 2, 0.1F).to(device);
  if (stage.norm) norm_shift = drawn(DType::f32, {stage.c}, 2, 1).to(device);
  const bool neuron = stage.act.is_neuron();
  if (neuron) membrane_in = drawn(DType::f32, membrane_shape(stage), 1, 0.3F).to(device);
  if (neuron) membrane_out = Tensor(DType::f32, membrane_shape(stage), device);
  y = Tensor(*stage.out, y_shape(stage), device);
  if (stage.keep.pre) pre = Tensor(*stage.out, pre_shape(stage), device);
  if (stage.keep.act) act = Tensor(*stage.out, pre_shape(stage), device);
  if (stage.keep.idx) idx = Tensor(DType::i32, y_shape(stage), device);
  poison();
}

void GpuCase::poison() {
  for (Tensor* tensor : {&y, &pre, &act, &idx, &membrane_out}) {
    const TensorView view = tensor->view();
    if (!view) continue;
    Tensor bits(view.dtype, {view.shape.begin(), view.shape.begin() + view.rank});
    std::memset(bits.view().data, 0xFF, bits.bytes());
    copy_tensor(bits, view);
  }
}

Operands GpuCase::operands() {
  Operands all;
  all.x = x;
  all.y = y;
  all.bias = bias;
  all.norm_scale = norm_scale;
  all.norm_shift = norm_shift;
  all.pre = pre;
  all.act = act;
  all.idx = idx;
  all.membrane_in = membrane_in;
  all.membrane_out = membrane_out;
  return all;
}

std::vector<unsigned char> GpuCase::outputs() const {
  std::vector<unsigned char> bytes;
  for (const Tensor* tensor : {&y, &pre, &act, &idx, &membrane_out}) {
    if (!tensor->view()) continue;
    const Tensor host = tensor->to({});
    const std::size_t size = size_of(host.view().dtype);
    const auto* begin = host.data<unsigned char>();
    for (std::size_t at = 0; at < host.bytes(); at += size) {
      bytes.insert(bytes.end(), begin + at, begin + at + size);
      const bool zero = std::all_of(bytes.end() - static_cast<std::ptrdiff_t>(size),
                                    bytes.end() - 1, [](unsigned char b) { return b == 0; });
      if (zero && bytes.back() == 0x80 && host.view().dtype != DType::i32) bytes.back() = 0;
    }
  }
  return bytes;
}

void expect_bits_of_general(const char* text, std::string_view kernel) {
  SCOPED_TRACE(text);
  const Stage stage = parse_stage(text);
  GpuCase fast(stage, Values::integers, gpu0), slow(stage, Values::integers, gpu0);
  const Plan plan(fast.stage, fast.w, options_for(gpu0, kernel)),
      general(slow.stage, slow.w, options_for(gpu0, "general"));
  plan.run(fast.operands()).or_throw();
  general.run(slow.operands()).or_throw();
  EXPECT_EQ(fast.outputs(), slow.outputs());
}

void expect_same_bits_of_fewer_images(const char* text, std::string_view kernel) {
  SCOPED_TRACE(text);
  GpuCase all(parse_stage(text), Values::normal, gpu0);
  const Plan plan(all.stage, all.w, options_for(gpu0, kernel));
  plan.run(all.operands()).or_throw();
  const Tensor expected = all.y.to({});
  Stage fewer = all.stage;
  fewer.n = 2;
  Tensor two(*fewer.out, y_shape(fewer), gpu0);
  Operands operands = all.operands();
  operands.x = images(all.x.view(), 3, 2);
  operands.y = two;
  plan.run(operands).or_throw();
  const Tensor got = two.to({});
  EXPECT_EQ(std::memcmp(got.view().data, images(expected.view(), 3, 2).data, got.bytes()), 0);
}

long long memory_kept_by(const std::function<void()>& work) {
  long long kept = 0;
  for (int i = 0; i < 100; ++i) {
    std::size_t before = 0, after = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
    work();
    EXPECT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
    kept = static_cast<long long>(before) - static_cast<long long>(after);
    if (kept == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return kept;
}

}  // namespace convoy
