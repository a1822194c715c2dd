// Chains: what is drawn, and that the engine sees what a kernel of several stages does wrong.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "cpu/families.hpp"
#include "cpu/spike/spike_events.hpp"
#include "verify/chain_parity.hpp"
#include "verify/coverage.hpp"
#include "verify/verify.hpp"

namespace convoy::verify {
namespace {

TEST(Chains, AreDrawnLegalAndForTheKernels) {
  Random random(3);
  const Machine machine = cpu_machine(1);
  std::set<std::string> cells;
  std::set<Index> steps;
  Index taken = 0, images = 0, means = 0, flattened = 0, wide_convs = 0, wide_linears = 0;
  for (int i = 0; i < 1000; ++i) {
    const OwnedChain drawn = draw_chain(random);
    const Chain chain = drawn;
    ASSERT_TRUE(problems(chain, false).empty()) << to_text(chain);
    EXPECT_EQ(parse_chain(to_text(chain)), drawn) << to_text(chain);
    steps.insert(chain.steps());
    images += chain.front().dtype == DType::u8;
    means += chain.mean;
    for (std::size_t j = 1; j < chain.size(); ++j)
      flattened += chain[j].h == 1 && shapes_of(chain[j - 1]).out_h > 1;
    if (!cpu::spike_chain().refusals(chain, machine).empty()) continue;
    ++taken;
    for (const Stage& stage : chain.stages)
      if (stage.dtype != DType::u8 && cpu::SpikeEvents::pays(stage))
        ++(stage.h == 1 && stage.w == 1 ? wide_linears : wide_convs);
    const Tile tile = cpu::spike_chain().tiles(chain, machine).front();
    for (const Cell& cell : cells_of({drawn, &cpu::spike_chain(), tile}))
      cells.insert(cell.epilogue + ", " + cell.tail);
  }
  EXPECT_EQ(steps, (std::set<Index>{1, 2, 3, 4, 5, 6}));
  EXPECT_GT(taken, 800);
  EXPECT_LT(taken, 1000);  // some have what it refuses
  EXPECT_GT(images, 300);
  EXPECT_GT(means, 200);
  EXPECT_GT(flattened, 300);
  EXPECT_GE(cells.size(), 20U);
  EXPECT_GT(wide_convs, 20);
  EXPECT_GT(wide_linears, 20);

  Index pools = 0, bf16 = 0, spiking = 0, labelled = 0;
  for (int i = 0; i < 400; ++i) {
    const OwnedChain drawn = draw_chain(random, DeviceKind::cuda);
    ASSERT_TRUE(problems(drawn, true).empty()) << to_text(drawn);
    if (drawn.constants) {  // for spike_resident, else for pair
      EXPECT_EQ(drawn.stages.front().dtype, DType::u8) << to_text(drawn);
      ++spiking;
      labelled += drawn.mean;
      continue;
    }
    EXPECT_EQ(drawn.stages.back().r, 1) << to_text(drawn);
    pools += drawn.stages.front().pool == max_pool(2);
    bf16 += drawn.stages.front().dtype == DType::bf16;
  }
  EXPECT_GT(spiking, 100);
  EXPECT_GT(labelled, 30);
  EXPECT_GT(pools, 120);
  EXPECT_GT(bf16, 30);
}

TEST(Chains, CoverageCountsTheLastEpilogueAndEveryTail) {
  const OwnedChain chain = parse_chain(
      "constants > spikes t2 > n1h8c8k16r3pad1+if(1)+t2 > n1h8c16k8r1+lif(2,1)+t2+max2 > "
      "n1h1c128k16r1 > mean");
  EXPECT_EQ(epilogue_of(chain), "mean");
  EXPECT_EQ(tails_of(chain), (std::vector<std::string>{"k tail", "pixel tail", "one pixel"}));
  const OwnedChain two{
      parse_chain("spikes t2 > n1h8c8k16r3pad1+if(1)+t2 > n1h8c16k16r1+if(1)+t2+max2")};
  EXPECT_EQ(epilogue_of(two), "if max2");
  EXPECT_EQ(tails_of(two), std::vector<std::string>{"whole"});
}

// `spike_chain` with what it wrote spoilt in one respect.
class Spoilt final : public Kernel {
 public:
  using Spoil = std::function<void(const RunArgs&)>;
  explicit Spoilt(Spoil spoil)
      : Kernel(cpu::spike_chain().facts().called("spoilt", serves_everything)),
        spoil_(std::move(spoil)) {}

 private:
  class Run final : public Prepared {
   public:
    Run(std::unique_ptr<Prepared> right, const Spoil& spoil)
        : right_(std::move(right)), spoil_(spoil) {}
    std::string packing() const override { return right_->packing(); }
    std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
      return right_->pack(all);
    }
    void use(std::shared_ptr<const PackedWeights> weights) override { right_->use(weights); }
    std::size_t workspace_bytes() const override { return right_->workspace_bytes(); }
    Status run(const RunArgs& args) const noexcept override {
      const Status status = right_->run(args);
      spoil_(args);
      return status;
    }

   private:
    std::unique_ptr<Prepared> right_;
    const Spoil& spoil_;
  };

  void refuse_chain(const Chain& chain, const Machine& m, Reasons& why) const override {
    why = cpu::spike_chain().refusals(chain, m);
  }
  std::vector<Tile> chain_tiles(const Chain& chain, const Machine& m) const override {
    return cpu::spike_chain().tiles(chain, m);
  }
  Cost chain_cost(const Chain& chain, const Tile& tile, const Machine& m) const override {
    return cpu::spike_chain().cost(chain, tile, m);
  }
  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile& tile,
                                          const Machine& m) const override {
    return std::make_unique<Run>(cpu::spike_chain().prepare(chain, tile, m), spoil_);
  }

  Spoil spoil_;
};

std::string failures_of(const OwnedChain& chain, const Kernel& kernel) {
  Threads threads(1);
  ChainParity parity(chain, 1, {}, threads);
  Tally tally;
  std::string all;
  const Tile tile = kernel.tiles(chain, cpu_machine(1)).front();
  for (const std::string& failure : parity.check(kernel, tile, true, tally)) all += failure + "\n";
  return all;
}

TEST(ChainParity, SeesWhatIsSpoilt) {
  const OwnedChain mean = parse_chain(
      "constants > u8:n3h10c2k9r3+bias+if(1)+t2+hold+max2 > n3h4c9k8r3pad1+if(0.5)+t2 > "
      "n3h1c128k5r1+bias > mean");
  const OwnedChain spikes = parse_chain(
      "constants > spikes t3 > n5h6c7k9r3pad1+lif(2,0.5)+t3 > n5h6c9k12r3+bias+if(1)+t3");
  EXPECT_EQ(failures_of(mean, Spoilt([](const RunArgs&) {})), "");
  EXPECT_EQ(failures_of(spikes, Spoilt([](const RunArgs&) {})), "");
  const auto y = [](const RunArgs& args) { return static_cast<float*>(args.y); };
  const struct {
    const char* what;
    const OwnedChain& chain;
    Spoilt::Spoil spoil;
    std::vector<std::string> seen;
  } cases[] = {
      {"a mean that is off",
       mean,
       [&](const RunArgs& a) { y(a)[7] += 0.25F; },
       {"(a) integers: y of stage 3", "(b) normal"}},
      {"a mean that is not written",
       mean,
       [&](const RunArgs& a) { y(a)[7] = NAN; },
       {"(a)", "(b)"}},
      {"a label",
       mean,
       [](const RunArgs& a) { a.labels[1] = (a.labels[1] + 1) % 5; },
       {"label of image 1"}},
      {"the last spike",
       spikes,
       [&](const RunArgs& a) { y(a)[3 * 16 * 12 * a.n - 1] = 0.5F; },
       {"(a) integers: y of stage 2", "(b) normal: stage 2"}},
      {"a spike between the stages",
       spikes,
       [](const RunArgs& a) {
         if (a.inner_y) a.inner_y[11] = 1 - a.inner_y[11];
       },
       {"(a) integers: y of stage 1", "(b) normal: stage 1"}},
      {"before what lies between",
       spikes,
       [](const RunArgs& a) {
         if (a.inner_y) a.inner_y[-1] = 0;
       },
       {"wrote outside the outputs"}},
      {"behind y",
       spikes,
       [&](const RunArgs& a) { y(a)[3 * 16 * 12 * a.n] = 0; },
       {"wrote outside the outputs"}},
      {"its input",
       spikes,
       [](const RunArgs& a) { *static_cast<float*>(const_cast<void*>(a.x)) = 7; },
       {"wrote outside the outputs"}},
      {"y by many threads",
       spikes,
       [&](const RunArgs& a) {
         if (a.threads->count() == 32) y(a)[5] = 1 - y(a)[5];
       },
       {"(d): 32 threads: image 0 of 5 has other bits"}},
      {"y of a batch",
       mean,
       [&](const RunArgs& a) {
         if (a.n == 64) y(a)[5 * 40] += 1;
       },
       {"(d): a batch of 64"}},
  };
  for (const auto& [what, chain, spoil, seen] : cases) {
    const std::string failures = failures_of(chain, Spoilt(spoil));
    for (const std::string& text : seen)
      EXPECT_NE(failures.find(text), std::string::npos) << what << ": " << failures;
  }
}

// `general` twice, with what lies between in memory: as a kernel that gives nothing of it and has
// the arithmetic of single stages. Its y is off by `error`.
class Twice final : public Kernel {
 public:
  explicit Twice(float error) : Kernel(facts()), error_(error) {}

 private:
  static KernelFacts facts() {
    KernelFacts facts = cpu::general().facts().called("twice", serves_everything);
    facts.chain = serves_every_chain;
    facts.least_stages = 2;
    return facts;
  }
  class Run final : public Prepared {
   public:
    Run(const Chain& chain, const Machine& machine, float error)
        : first_(chain[0]), second_(chain[1]), error_(error) {
      for (const Stage& stage : chain.stages) {
        const Tile tile = cpu::general().tiles(stage, machine).front();
        parts_.push_back(cpu::general().prepare(stage, tile, machine));
      }
    }
    std::string packing() const override { return "twice"; }
    std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
      for (std::size_t i = 0; i < 2; ++i) set_weights(*parts_[i], all[i].w);
      return std::make_shared<PackedWeights>();
    }
    void use(std::shared_ptr<const PackedWeights>) override {}
    std::size_t workspace_bytes() const override {
      return parts_[0]->workspace_bytes() + parts_[1]->workspace_bytes();
    }
    Status run(const RunArgs& args) const noexcept override {
      std::vector<float> between(static_cast<std::size_t>(shapes_of(first_).y_elements));
      RunArgs one = args, two = args;
      one.y = between.data();
      one.y_stride = dense_y(first_, args.n);
      two.x = between.data();
      two.x_stride = dense_x(second_, args.n);
      static_cast<StageArgs&>(two) = args.later.front();
      parts_[0]->run(one).or_throw();
      parts_[1]->run(two).or_throw();
      static_cast<float*>(args.y)[3] += error_;
      return {};
    }

   private:
    Stage first_, second_;
    float error_;
    std::vector<std::unique_ptr<Prepared>> parts_;
  };

  void refuse_chain(const Chain&, const Machine&, Reasons&) const override {}
  std::vector<Tile> chain_tiles(const Chain&, const Machine&) const override { return {{"only"}}; }
  Cost chain_cost(const Chain&, const Tile&, const Machine&) const override {
    return {.seconds = 1e-12};
  }
  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile&,
                                          const Machine& machine) const override {
    return std::make_unique<Run>(chain, machine, error_);
  }
  float error_;
};

TEST(ChainParity, ComparesWithTheStagesByThemselves) {
  const OwnedChain chain =
      parse_chain("n2h9c5k8r3pad1+bias+relu+max2 > n2h4c8k6r1+bias+leaky(0.5)");
  EXPECT_EQ(failures_of(chain, Twice(0)), "");
  const std::string failures = failures_of(chain, Twice(0x1p-12F));
  for (const char* text :
       {"(a) integers: y of stage 2", "(b) normal: y, compared with the separate"})
    EXPECT_NE(failures.find(text), std::string::npos) << failures;
}

TEST(ChainParity, RefusesWhatIsTooLargeForTheOracle) {
  Threads threads(1);
  const OwnedChain chain = parse_chain(
      "constants > spikes t6 > n4096h32c64k64r3pad1+if(1)+t6 > n4096h32c64k64r3+if(1)+t6");
  try {
    const ChainParity parity(chain, 1, {}, threads);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--images"), std::string::npos) << error.what();
  }
}

// Two images on 8 and on 32 threads: any of their slots may be the two that get one.
TEST(ChainParity, FewImagesOnManyThreads) {
  VerifyOptions options;
  options.stages = {parse_chain("constants > spikes t2 > n2h8c8k16r3pad1+if(1.5)+soft+t2")};
  options.kernel = "spike_chain";
  const Report report = verify(options);
  EXPECT_EQ(report.chains, 1);
  for (const Failure& failure : report.failures) ADD_FAILURE() << failure.what;
}

// A chain of one stage is more than the stage where it has constants or a mean: no kernel of
// single stages may take it for that.
TEST(ChainParity, KernelsOfOneStageTakeNoChain) {
  VerifyOptions options;
  options.stages = {parse_chain("constants > spikes t3 > n2h1c40k8r1 > mean")};
  const Report report = verify(options);
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.chains, 1);
  for (const auto& [cell, count] : report.coverage) EXPECT_EQ(cell.kernel, "spike_chain");
  options.kernel = "general";
  EXPECT_THROW(verify(options), Error);
}

}  // namespace
}  // namespace convoy::verify
