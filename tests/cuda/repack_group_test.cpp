// Weights of several plans that are compared and packed together (plan/repack_group.hpp): the bits
// of Plan::set_weights, whatever changed, in turns with Plan::repack and on several streams.
#include "plan/repack_group.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cuda/error.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

/// What a group gives a run as its bias.
enum class Shift : std::uint8_t { none, of_bias, of_norm };

/// A stage with weights, and perhaps a norm, that lie on the GPU, and the plan that a group packs.
class Member {
 public:
  Member(const char* text, Shift shift)
      : stage_(parse_stage(text)),
        case_(stage_, Values::integers, gpu0),
        plan_(stage_, options_for(gpu0)),
        w_(case_.w.to(gpu0)),
        kind_(shift) {
    if (shift == Shift::none) return;
    // Scales are powers of two, so that the folded weights are exact.
    for (Tensor* const vector : {&bias_, &gamma_, &beta_, &mean_, &variance_})
      *vector = Tensor(DType::f32, {stage_.k});
    for (Index k = 0; k < stage_.k; ++k) {
      at(bias_, k) = static_cast<float>(k % 5);
      at(gamma_, k) = k % 3 == 0 ? -2.0F : 0.5F;
      at(beta_, k) = static_cast<float>(k % 7 - 3);
      at(mean_, k) = static_cast<float>(k % 4);
      at(variance_, k) = 1;
    }
    shift_ = Tensor(DType::f32, {stage_.k}, gpu0);
    for (Tensor* const vector : {&bias_, &gamma_, &beta_, &mean_, &variance_})
      on_gpu_.push_back(vector->to(gpu0));
  }

  bool join(RepackGroup& group) {
    gpu::FoldedNorm norm;
    if (shift_.view()) {
      const std::array vectors{&norm.bias, &norm.gamma, &norm.beta, &norm.mean, &norm.variance};
      for (std::size_t i = 0; i < count_of_vectors(); ++i)
        vectors.at(i)->data = on_gpu_[i].view().data;
      norm.shift = shift_.data<float>(), norm.filters = stage_.k;
    }
    return group.add(plan_, w_, norm, {});
  }

  Index sizes() const { return w_.elements(); }
  bool has_norm() const { return kind_ == Shift::of_norm; }
  std::size_t count_of_vectors() const {
    return kind_ == Shift::none ? 0 : kind_ == Shift::of_bias ? 1 : on_gpu_.size();
  }

  /// Changes one weight, on the host and on the device.
  void change_weight(Index i) {
    float& value = at(case_.w, i);
    value = value > 0 ? -1 : 2;
    put(w_, i, value);
  }
  void change_vector(std::size_t which, Index k) {
    Tensor& vector = *std::array{&bias_, &gamma_, &beta_, &mean_, &variance_}.at(which);
    float& value = at(vector, k);
    value = which == 4 ? (value == 1 ? 0.25F : 1) : value * 2 + 1;
    if (which == 1) value = value > 0 ? -0.5F : 4;
    put(on_gpu_[which], k, value);
  }

  /// Runs the plan on the stream, and tells whether y has the bits of a plan with these weights.
  bool is_right(Stream stream) {
    case_.poison();
    Operands operands = case_.operands();
    if (kind_ != Shift::none) operands.bias = shift_.view();
    plan_.run(operands, stream).or_throw();
    gpu::synchronize(gpu0, stream);
    const std::vector<unsigned char> found = case_.outputs();

    Tensor w = Tensor(DType::f32, w_shape(stage_));
    Tensor bias(DType::f32, {stage_.k});
    const Index of_filter = w.elements() / stage_.k;
    for (Index k = 0; k < stage_.k; ++k) {
      const float scale = has_norm() ? at(gamma_, k) * (at(variance_, k) == 1 ? 1.0F : 2.0F) : 1.0F;
      for (Index i = k * of_filter; i < (k + 1) * of_filter; ++i) at(w, i) = at(case_.w, i) * scale;
      if (has_norm()) at(bias, k) = (at(bias_, k) - at(mean_, k)) * scale + at(beta_, k);
      if (kind_ == Shift::of_bias) at(bias, k) = at(bias_, k);
    }
    PlanOptions options = options_for(gpu0);
    options.kernel = plan_.kernel(), options.tile = plan_.tile();
    const Plan fresh(stage_, w, options);
    case_.poison();
    const Tensor bias_on_gpu = bias.to(gpu0);
    operands = case_.operands();
    if (kind_ != Shift::none) operands.bias = bias_on_gpu.view();
    fresh.run(operands).or_throw();
    gpu::synchronize(gpu0, {});
    return case_.outputs() == found;
  }

  Plan& plan() { return plan_; }
  const Tensor& weights() const { return w_; }

 private:
  static float& at(Tensor& tensor, Index i) { return tensor.data<float>()[i]; }
  static const float& at(const Tensor& tensor, Index i) { return tensor.data<float>()[i]; }
  static void put(Tensor& on_gpu, Index i, float value) {
    cuda::check(cudaMemcpy(on_gpu.data<float>() + i, &value, sizeof value, cudaMemcpyHostToDevice),
                "changing a value");
  }

  Stage stage_;
  GpuCase case_;
  Plan plan_;
  Tensor w_, bias_, gamma_, beta_, mean_, variance_, shift_;
  std::vector<Tensor> on_gpu_;
  Shift kind_;
};

class GpuRepackGroup : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    constexpr const char* plain[] = {"f16:n2h14w14c64k64r3pad1+relu", "f16:n1h8w8c72k136r1",
                                     "n2h14w14c64k64r3pad1", "bf16:n2h9w9c16k24r3pad1+relu+max2"};
    constexpr const char* with_norm[] = {
        "f16:n2h14w14c64k72r3pad1+bias+relu", "n2h14w14c64k64r3pad1+bias", "f16:n1h8w8c3k64r7+bias",
        "f16:n2h9w9c64k64r3pad1groups64+bias+relu", "bf16:n1h1w1c256k1000r1+bias"};
    for (const char* text : plain) members_.emplace_back(text, Shift::none);
    for (const char* text : with_norm) members_.emplace_back(text, Shift::of_norm);
    members_.emplace_back("f16:n1h8w8c64k40r1+bias+relu", Shift::of_bias);
    group_.emplace(gpu0, static_cast<Index>(members_.size()));
    for (Member& member : members_) ASSERT_TRUE(member.join(*group_));
  }

  void expect_right(Stream stream, const std::string& after) {
    group_->enqueue(stream);
    for (std::size_t i = 0; i < members_.size(); ++i)
      EXPECT_TRUE(members_[i].is_right(stream)) << "member " << i << " after " << after;
  }

  std::deque<Member> members_;
  std::optional<RepackGroup> group_;
};

TEST_F(GpuRepackGroup, SeesEachChange) {
  expect_right({}, "the start");
  expect_right({}, "no change");
  for (Member& member : members_) {
    for (const Index i : {Index{0}, member.sizes() / 2, member.sizes() - 1}) {
      member.change_weight(i);
      group_->enqueue({});
      EXPECT_TRUE(member.is_right({})) << "weight " << i;
    }
    for (std::size_t which = 0; which < member.count_of_vectors(); ++which) {
      member.change_vector(which, 1);
      group_->enqueue({});
      EXPECT_TRUE(member.is_right({})) << "vector " << which;
    }
  }
  expect_right({}, "all changes");
}

TEST_F(GpuRepackGroup, TakesTurnsWithRepackAndSetWeights) {
  expect_right({}, "the start");
  for (Member& member : members_) {
    // The norm isn't folded into these: the group must see that other weights are packed.
    member.plan().repack(member.weights());
  }
  expect_right({}, "repack");
  for (Member& member : members_) member.plan().set_weights(member.weights());
  expect_right({}, "set_weights");
}

TEST_F(GpuRepackGroup, OrdersStreams) {
  expect_right({}, "the start");
  std::array<cudaStream_t, 3> streams{};
  for (cudaStream_t& stream : streams)
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  for (int round = 0; round < 20; ++round) {
    for (Member& member : members_) member.change_weight(round);
    cuda::check(cudaDeviceSynchronize(), "waiting");
    // The second stream compares with fingerprints that the first one wrote, and finds no change.
    group_->enqueue({streams[static_cast<std::size_t>(round) % 3]});
    const Stream other{streams[static_cast<std::size_t>(round + 1) % 3]};
    group_->enqueue(other);
    EXPECT_TRUE(members_[static_cast<std::size_t>(round) % members_.size()].is_right(other));
  }
  cuda::check(cudaDeviceSynchronize(), "waiting");
  for (cudaStream_t stream : streams) cuda::check(cudaStreamDestroy(stream), "a stream's end");
}

TEST_F(GpuRepackGroup, RefusesGapsAndCaptures) {
  const Stage stage = parse_stage("n1h4w4c4k4r3");
  Plan plan(stage, options_for(gpu0));
  Tensor wide(DType::f32, {4, 3, 3, 8}, gpu0);
  TensorView part = wide.view();
  part.shape[3] = 4;
  RepackGroup group(gpu0, 1);
  EXPECT_FALSE(group.add(plan, part, {}, {}));
  group.enqueue({});  // of nothing

  expect_right({}, "the start");
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture");
  EXPECT_THROW(group_->enqueue({stream}), Error);
  cudaGraph_t graph = nullptr;
  cuda::check(cudaStreamEndCapture(stream, &graph), "the end of a capture");
  cuda::check(cudaGraphDestroy(graph), "a graph's end");
  cuda::check(cudaStreamDestroy(stream), "a stream's end");
}

}  // namespace
}  // namespace convoy
