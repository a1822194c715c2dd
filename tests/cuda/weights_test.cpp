// Packed weights of the Hopper families: on the host where each value lies, on a GPU that plans of
// one packing share them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "bench/fit/h200.hpp"
#include "cuda/families.hpp"
#include "cuda/sm90/first.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "gpu_case.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

std::vector<float> numbered(const Stage& stage) {
  std::vector<float> w(static_cast<std::size_t>(shapes_of(stage).w_elements));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
  return w;
}

// Walks over the operand as wgmma does: 64 channels by 16 products a step, in core matrices of
// eight channels by 16 bytes that lie 128 bytes apart, those of the next eight products 1024.
TEST(First, WeightsLieInCoreMatrices) {
  using namespace cuda::sm90;
  for (const Stage& stage : read_shape_list(source_path("tests/cuda/first-stages.txt"))) {
    SCOPED_TRACE(to_text(stage));
    const FirstLayout l = first_layout(stage, cuda::h200());
    const std::vector<float> w = numbered(stage), packed = first_weights(stage, l, w.data());
    ASSERT_EQ(packed.size() * 2, static_cast<std::size_t>(l.w_bytes));
    const Index steps = l.row_taps / 4, blocks = (stage.k + 63) / 64;
    for (Index step = 0; step < blocks * stage.r * steps; ++step) {
      for (Index m = 0; m < 64; ++m) {
        for (Index j = 0; j < 16; ++j) {
          const Index byte = step * 2048 + m / 8 * 128 + m % 8 * 16 + j / 8 * 1024 + j % 8 * 2;
          const Index k = step / (stage.r * steps) * 64 + m, r = step / steps % stage.r,
                      s = step % steps * 4 + j / 4 - l.lead, c = j % 4;
          const bool there = k < stage.k && s >= 0 && s < stage.s && c < stage.c;
          const Index from = ((k * stage.r + r) * stage.s + s) * stage.c + c;
          ASSERT_EQ(packed[static_cast<std::size_t>(byte / 2)],
                    there ? w[static_cast<std::size_t>(from)] : 0.0F);
        }
      }
    }
  }
}

TEST(Halo, WeightsLieInTheOrderOfSummation) {
  using namespace cuda::sm90;
  for (const Stage& stage : read_shape_list(source_path("tests/cuda/halo-stages.txt"))) {
    SCOPED_TRACE(to_text(stage));
    const std::vector<float> w = numbered(stage), packed = halo_weights(stage, w.data());
    ASSERT_EQ(packed.size(), static_cast<std::size_t>(halo_weights_elements(stage)));
    const std::vector<int> order = halo_tap_order(stage);
    std::size_t at = 0;
    for (Index block = 0; block < stage.c; block += 64) {
      for (const int tap : order) {
        for (Index k = 0; k < stage.k; ++k) {
          for (Index c = block; c < block + 64; ++c, ++at) {
            const Index from = (k * stage.r * stage.s + tap) * stage.c + c;
            ASSERT_EQ(packed[at], c < stage.c ? w[static_cast<std::size_t>(from)] : 0.0F);
          }
        }
      }
    }
  }
}

class GpuWeights : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && gpu::machine(0).compute_capability != 90)
      GTEST_SKIP() << "skipped: not 9.0";
  }
};

// Weights packed for a plan of four images serve one of two, after the first is gone; other weights
// replace them.
TEST_F(GpuWeights, PlansOfOnePackingShareThem) {
  const Machine machine = gpu::machine(0);
  const struct {
    const Kernel& kernel;
    const char *stage, *other;  // of another packing
  } lines[] = {
      {cuda::sm90::halo(), "f16:n4h9c64k64r3pad1+relu", "f16:n4h9c64k64r3pad1stride2+relu"},
      {cuda::sm90::few(), "f16:n4h9c64k3r3pad1+relu", "f16:n4h9c128k3r3pad1+relu"},
      {cuda::sm90::first(), "f16:n4h9c3k64r3pad1+relu", "f16:n4h9c3k64r3pad2+relu"},
  };
  for (const auto& line : lines) {
    SCOPED_TRACE(line.stage);
    GpuCase all(parse_stage(line.stage), Values::normal, gpu0);
    Stage fewer = all.stage;
    fewer.n = 2;
    const auto prepare = [&](const Stage& stage) {
      return line.kernel.prepare(stage, line.kernel.tiles(stage, machine).front(), machine);
    };
    const auto two = prepare(fewer);
    Tensor y(*fewer.out, y_shape(fewer), gpu0);
    const Shapes shapes = shapes_of(fewer);
    RunArgs args;
    args.n = 2;
    args.x = all.x.view().data;
    args.x_stride = {0, fewer.h * fewer.w * fewer.c, fewer.w * fewer.c, fewer.c, 1};
    args.y = y.view().data;
    args.y_stride = {0, shapes.out_h * shapes.out_w * fewer.k, shapes.out_w * fewer.k, fewer.k, 1};
    {
      const auto four = prepare(all.stage);
      ASSERT_EQ(four->packing(), two->packing());
      EXPECT_NE(prepare(parse_stage(line.other))->packing(), two->packing());
      const Parameters parameters{.w = all.w.data<float>()};
      const std::shared_ptr<const PackedWeights> packed = four->pack({&parameters, 1});
      four->use(packed);
      two->use(packed);
    }
    two->run(args).or_throw();
    const Plan plan(all.stage, all.w, options_for(gpu0, line.kernel.name()));
    plan.run(all.operands()).or_throw();
    const Tensor got = y.to({}), expected = all.y.to({});
    EXPECT_EQ(std::memcmp(got.view().data, expected.view().data, got.bytes()), 0);

    const std::vector<float> zeros(static_cast<std::size_t>(shapes.w_elements));
    set_weights(*two, zeros.data());
    two->run(args).or_throw();
    const Tensor nothing = y.to({});
    const std::vector<std::uint16_t> no(static_cast<std::size_t>(y.elements()));
    EXPECT_EQ(std::memcmp(nothing.view().data, no.data(), nothing.bytes()), 0);
  }
}

// The same by the public objects, of plans of two batch sizes on two streams, from weights that lie
// on the GPU already.
TEST_F(GpuWeights, PlansOnTwoStreamsShareOnesThatWereOnTheGpu) {
  GpuCase all(parse_stage("f16:n4h9c64k64r3pad1+relu"), Values::normal, gpu0);
  Stage fewer = all.stage;
  fewer.n = 2;
  const PlanOptions options = options_for(gpu0, "halo");
  Plan two(fewer, options), four(all.stage, options);
  ASSERT_EQ(two.packing(), four.packing());
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    const Tensor there = all.w.to(gpu0);
    const Weights weights = four.pack(there, {streams[0]});
    four.use(weights, {streams[0]});
    two.use(weights, {streams[1]});
  }
  Tensor y(all.y.view().dtype, y_shape(fewer), gpu0);
  Operands operands = all.operands();
  four.run(operands, {streams[0]}).or_throw();
  operands.x = images(all.x.view(), 0, 2);
  operands.y = y;
  two.run(operands, {streams[1]}).or_throw();
  for (cudaStream_t stream : streams) {
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
  }
  const Tensor whole = all.y.to({}), part = y.to({});
  EXPECT_EQ(std::memcmp(part.view().data, whole.view().data, part.bytes()), 0);
  const Tensor shared = all.y.to({});
  const Plan own(all.stage, all.w, options);
  all.poison();
  own.run(all.operands()).or_throw();
  const Tensor expected = all.y.to({});
  EXPECT_EQ(std::memcmp(shared.view().data, expected.view().data, expected.bytes()), 0);
  EXPECT_THROW(two.use(Plan(all.stage, options_for({}, "general")).pack(all.w)), Error);
}

// Weights that the stream writes before they are set, late enough that whoever does not wait for it
// reads the former ones. The runs before and after lie on the same stream.
TEST_F(GpuWeights, WrittenOnTheStreamAreThoseOfLaterRuns) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (const auto& [text, kernel] : {std::pair("f16:n4h9c64k64r3pad1+bias+relu", "halo"),
                                     {"f16:n2h19c3k32r3pad1+bias+relu+max2", "first"},
                                     {"f16:n2h12c64k3r3pad1+bias", "few"},
                                     {"f16:n2h12c64k64r3pad1groups64+bias", "depthwise"},
                                     {"n2h12c3k32r3pad1+bias", "fma"},
                                     {"f32:n2h7c8k8r3pad1+bias", "general"}}) {
    SCOPED_TRACE(text);
    GpuCase first(parse_stage(text), Values::normal, gpu0);
    GpuCase second(first.stage, Values::integers, gpu0);
    const PlanOptions options = options_for(gpu0, kernel);
    Tensor there = first.w.to(gpu0);
    Plan plan(first.stage, there, options);
    plan.run(first.operands(), {stream}).or_throw();
    ASSERT_EQ(cudaLaunchHostFunc(
                  stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); },
                  nullptr),
              cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(there.view().data, second.w.view().data, second.w.bytes(),
                              cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    plan.set_weights(there, {stream});
    plan.run(first.operands(), {stream}).or_throw();
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const std::vector<unsigned char> outputs = first.outputs();
    first.poison();
    Plan(first.stage, second.w, options).run(first.operands()).or_throw();
    EXPECT_EQ(outputs, first.outputs());
    first.poison();
    Plan(first.stage, first.w, options).run(first.operands()).or_throw();
    EXPECT_NE(outputs, first.outputs()) << "both weights give the same";
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace convoy
