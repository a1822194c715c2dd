// More images than a kernel takes at once, on a GPU: with a small bound, all operands of a run;
// with real sizes by `convoy verify` (docs/use/cli/verify.md).
#include "plan/parts.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "cuda/known_gpus.hpp"
#include "gpu_case.hpp"
#include "plan/bound.hpp"
#include "plan/kernel_table.hpp"
#include "plan/operands.hpp"
#include "plan/select.hpp"

namespace convoy {
namespace {

class GpuParts : public GpuTest {};

/// A kernel of the table, of at most so many images at once.
class Limited final : public Kernel {
 public:
  Limited(const Kernel& inner, Index most)
      : Kernel(inner.facts().called("limited", inner.facts().serves)), inner_(inner), most_(most) {}

 private:
  void refuse_chain(const Chain& chain, const Machine& m, Reasons& why) const override {
    if (chain.front().n > most_)
      why.emplace_back("more images than it counts");
    else
      why = inner_.refusals(chain, m);
  }
  std::vector<Tile> chain_tiles(const Chain& chain, const Machine& m) const override {
    return inner_.tiles(chain, m);
  }
  Cost chain_cost(const Chain& chain, const Tile& tile, const Machine& m) const override {
    return inner_.cost(chain, tile, m);
  }
  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile& tile,
                                          const Machine& m) const override {
    return inner_.prepare(chain, tile, m);
  }
  const Kernel& inner_;
  Index most_;
};

TEST_F(GpuParts, GiveTheBitsOfTheWhole) {
  for (const auto& [name, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"halo", "f16:n41h9w7c16k24r3pad1+bias+relu+max2"},
           {"halo", "f16:n41h8c64k64r3pad1+bias+lif(2,1)+t4+max2"},
           {"halo", "f16:n41h8c64k64r3pad1+bias+if(1)+soft+t3+hold"},
           {"halo_neuron_pass", "f16:n41h9w7c16k24r3pad1+bias+lif(2,1)+t3+max2+keep(pre,act,idx)"},
           {"fma_neuron_pass_nchw", "n41h9w7c5k8r3pad1nchw+bias+if(1)+t2"},
           {"halo_pool", "f16:n41h9w7c16k24r3pad1+bias+relu+max3s2p1+keep(idx)"},
           {"first", "f16:n41h16c3k16r3pad1+bias+relu+max2"},
           {"window", "n41h9w7c24k40r3pad1+bias+relu"},
           {"depthwise", "f16:n41h9w7c24k24r3pad1groups24+bias+relu"},
           {"general", "n41h9w7c5k6r3pad1+bias+lif(2,1)+t2+max2+keep(pre,act,idx)"}}) {
    const Kernel& kernel = *find_kernel(name, DeviceKind::cuda);
    const Machine machine = gpu::machine(0);
    const Stage stage = parse_stage(text).normalised();
    if (!fits(kernel, stage, machine)) continue;  // another GPU than Hopper
    GpuCase one(stage, Values::normal, gpu0);
    const Plan whole(stage, one.w, options_for(gpu0, name));
    whole.run(one.operands()).or_throw();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto expected = one.outputs();
    for (const Index most : {1, 7, 16, 40}) {
      SCOPED_TRACE(testing::Message() << name << ' ' << text << " at most " << most);
      const Limited limited(kernel, most);
      const Kernel* const table[] = {&limited};
      const PlanOptions options = options_for(gpu0, "limited");
      Bound bound(stage, options, select(stage, machine, options, nullptr, table));
      const Parameters parameters{.w = one.w.data<float>()};
      bound.set({&parameters, 1});
      one.poison();
      RunArgs args;
      bind_operands(stage, shapes_of(stage), gpu0, one.operands(), args).or_throw();
      bound.run(args, nullptr, {}).or_throw();
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(one.outputs(), expected);
      // The copies of parts are captured like launches.
      one.poison();
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
      Tensor workspace =
          bound.workspace_bytes() == 0
              ? Tensor()
              : Tensor(DType::u8, {static_cast<Index>(bound.workspace_bytes())}, gpu0);
      ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      bound.run(args, workspace.data<void>(), {stream}).or_throw();
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(one.outputs(), expected);
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
      cudaStreamDestroy(stream);
    }
  }
}

// Needs no GPU. Some of these batches were refused by the kernel of one image, others never came to
// an end on it.
TEST(Parts, TheBatchDoesNotDecideTheKernel) {
  const Machine machine = cuda::machine_of(cuda::h200());
  for (const char* text :
       {"f16:n15000h224c3k64r7stride2pad3+bias+relu+max3s2p1",
        "u8:n15000h224c3k32r3stride2pad1+norm+bias+relu", "f16:n11000h56c64k64r3pad1groups64",
        "f16:n66h256c64k512r3pad1+bias+lif(2,1)+t4+max2", "f16:n2000000000h1c1k8r1",
        "f16:n20000h56c64k64r1", "n60000h56c64k64r3pad1groups2"}) {
    Stage stage = parse_stage(text);
    const auto arithmetic = [&] {
      return select(stage, machine, options_for(gpu0), nullptr).kernel().arithmetic();
    };
    const std::string_view of_all = arithmetic();
    stage.n = 1;
    EXPECT_EQ(arithmetic(), of_all) << text;
  }
}

}  // namespace
}  // namespace convoy
