// Wrappers around any inner kernel: they hand on its facts, refuse what their own passes can't do,
// and run. (halo inside them: pool_test, pad_test, layout_test.)
#include <gtest/gtest.h>

#include "bench/fit/h200.hpp"
#include "cuda/families.hpp"
#include "cuda/wrap/fired.hpp"
#include "cuda/wrap/nchw.hpp"
#include "cuda/wrap/padded.hpp"
#include "cuda/wrap/pooled.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

class Inner final : public StageKernel {
 public:
  Inner()
      : StageKernel({.name = "inner",
                     .arithmetic = "of its own",
                     .device = DeviceKind::cuda,
                     .serves = serves_everything,
                     .exact = true,
                     .contains_non_finite = false,
                     .by_name_only = true,
                     .error_bound = 3}) {}
  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    if (stage.pool) why.emplace_back("no pools");
  }
  std::vector<Tile> tiles(const Stage&, const Machine&) const override { return {{"one"}}; }
  Cost cost(const Stage&, const Tile&, const Machine&) const override { return {1e-6, 1, 0, 1}; }
  std::unique_ptr<Prepared> prepare(const Stage&, const Tile&, const Machine&) const override {
    return nullptr;
  }
};

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "; ";
  return all;
}

TEST(Wrapped, HandsOnTheFactsOfWhatItRuns) {
  const Inner inner;
  const cuda::Pooled pooled("inner_pool", inner);
  const cuda::Padded padded("inner_padded", inner, 16);
  const cuda::Fired neurons("inner_neuron_pass", inner);
  const cuda::Nchw nchw("inner_nchw", inner), twice("inner_padded_nchw", padded);
  const std::pair<const Kernel*, const char*> all[] = {{&pooled, "inner_pool"},
                                                       {&padded, "inner_padded"},
                                                       {&neurons, "inner_neuron_pass"},
                                                       {&nchw, "inner_nchw"},
                                                       {&twice, "inner_padded_nchw"}};
  for (const auto& [kernel, name] : all) {
    EXPECT_EQ(kernel->name(), name);
    const KernelFacts& facts = kernel->facts();
    EXPECT_EQ(facts.arithmetic, "of its own") << name;
    EXPECT_TRUE(facts.exact && facts.by_name_only) << name;
    EXPECT_FALSE(facts.contains_non_finite) << name;
    EXPECT_EQ(facts.error_bound, 3) << name;
  }
}

TEST(Wrapped, RefusesWhatItsOwnPassesCannotDo) {
  const Inner inner;
  const Machine machine = cuda::machine_of(cuda::h200());
  const cuda::Pooled pooled("inner_pool", inner);
  const cuda::Padded padded("inner_padded", inner, 16);
  const cuda::Fired neurons("inner_neuron_pass", inner);
  const cuda::Nchw nchw("inner_nchw", inner), strided("inner_nchw", inner, cuda::Nchw::strided_x);
  const auto why = [&](const StageKernel& kernel, const char* text) {
    return joined(kernel.refusals(parse_stage(text), machine));
  };
  EXPECT_EQ(why(pooled, "f16:n1h8c8k8r3+relu+max2"), "");
  EXPECT_EQ(why(pooled, "f16:n1h8c8k8r3+relu"), "inner runs the stage in one launch; ");
  EXPECT_EQ(why(pooled, "f32:n1h8c8k12r3+relu+max2"), "");
  EXPECT_EQ(why(pooled, "f16:n1h8c8k8r3nchw+relu+max2"), "the layout is nchw, expected nhwc; ");

  EXPECT_EQ(why(padded, "f16:n1h8c8k16r3"), "");
  EXPECT_EQ(why(padded, "f16:n1h8c32k16r3"), "C and K are multiples of 16, as inner needs; ");
  EXPECT_EQ(why(padded, "f32:n1h8c8k16r3nchw+norm+keep(pre)"),
            "x is f32, expected f16 or bf16; y is f32, expected f16 or bf16; the layout is nchw, "
            "expected nhwc; norm is asked for, expected none; keep is pre, expected none; ");
  EXPECT_EQ(why(padded, "f16:n1h8c8k16r3+if(1)"),
            "the activation is if, expected none, relu, relu6, clip or leaky; ");

  EXPECT_EQ(why(neurons, "f16:n1h8c8k8r3+if(1)+max2+keep(pre,act,idx)"), "");  // no pool inside
  EXPECT_EQ(why(neurons, "f16:n1h8c8k6r3nchw+relu"),
            "the layout is nchw, expected nhwc; the activation is relu, expected if or lif; ");
  EXPECT_EQ(why(neurons, "f16:n1000000h8c8k8192r3+if(1)+t1000"),
            "elements of x = 512000000000, at most 2^38 - 1 fit; elements of the convolution's "
            "output = 294912000000000, at most 2^38 - 1 fit; elements of y = 294912000000000, at "
            "most 2^38 - 1 fit; membranes = 294912000000, at most 2^30 fit; ");
  EXPECT_EQ(why(neurons, "f16:n2000000h3c8k4r3+if(1)+t1000"),
            "N*T = 2000000000, at most 2^30 fit; ");

  EXPECT_EQ(why(nchw, "f16:n1h8c8k16r3nchw+keep(pre)"), "");
  EXPECT_EQ(why(nchw, "f16:n1h8c8k16r3"), "the layout is nhwc, expected nchw; ");
  EXPECT_EQ(why(nchw, "u8:n1h8c8k16r3nchw"), "x is u8, expected f16, bf16 or f32 to transpose; ");
  EXPECT_EQ(why(strided, "u8:n1h8c8k16r3nchw"), "");
  EXPECT_EQ(why(nchw, "u8:n1h8c1k16r3nchw"), "");  // one channel: nothing to transpose
  EXPECT_EQ(why(nchw, "f16:n1h8c8k16r3nchwout(f32)+lif(2,1)+t4"), "");  // steps are images
  EXPECT_EQ(why(nchw, "f16:n1000000h8c8k16r3nchw+if(1)+t5000"),
            "more tiles of 64x64 to transpose than 32 bits count; ");
}

class GpuWrapped : public GpuTest {
 protected:
  // The wrapped depthwise kernel gives the bits of `general`, as depthwise itself does.
  static void expect_bits_of_general(const StageKernel& kernel, const char* text) {
    const Stage stage = parse_stage(text);
    const Machine machine = gpu::machine(0);
    ASSERT_EQ(joined(kernel.refusals(stage, machine)), "") << text;
    GpuCase wrapped(stage, Values::normal, gpu0), plain(stage, Values::normal, gpu0);
    Plan(stage, plain.w, options_for(gpu0, "general")).run(plain.operands()).or_throw();
    const auto prepared = kernel.prepare(stage, kernel.tiles(stage, machine).front(), machine);
    set_weights(*prepared, static_cast<const float*>(wrapped.w.view().data));
    const auto bytes = static_cast<Index>(prepared->workspace_bytes());
    Tensor workspace(DType::u8, {bytes > 0 ? bytes : 1}, gpu0);
    const Operands operands = wrapped.operands();
    RunArgs args;
    args.n = stage.n;
    const auto strides = [&](const TensorDescriptor& view) {
      const auto& s = view.stride;
      return stage.layout == Layout::nchw ? Strides{0, s[0], s[2], s[3], s[1]}
                                          : Strides{0, s[0], s[1], s[2], s[3]};
    };
    args.x = operands.x.data, args.x_stride = strides(operands.x);
    args.y = operands.y.data, args.y_stride = strides(operands.y);
    args.bias = static_cast<const float*>(operands.bias.data);
    args.workspace = static_cast<std::byte*>(workspace.view().data);
    prepared->run(args).or_throw();
    gpu::synchronize(gpu0, {});
    EXPECT_EQ(wrapped.outputs(), plain.outputs()) << text;
  }
};

TEST_F(GpuWrapped, RunsAnyKernelInside) {
  const Kernel& inner = cuda::depthwise();
  expect_bits_of_general(cuda::Nchw("depthwise_nchw", inner),
                         "f16:n3h9w7c24k24r3pad1groups24nchw+bias+relu");
  expect_bits_of_general(cuda::Pooled("depthwise_pool", inner),
                         "bf16:n2h9w7c24k24r3pad1groups24+bias+relu+max3s2p1");
}

}  // namespace
}  // namespace convoy
