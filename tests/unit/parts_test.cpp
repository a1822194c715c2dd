// Runs of more images than a kernel takes at once: the bits of each image, all operands of a run,
// and that n decides nothing else.
#include "plan/parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/families.hpp"
#include "plain_options.hpp"
#include "plan/bound.hpp"
#include "plan/explain.hpp"
#include "plan/operands.hpp"
#include "plan/segments.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"

namespace convoy {
namespace {

/// cpu::general, of at most so many images at once.
class Limited final : public StageKernel {
 public:
  explicit Limited(Index most) : StageKernel(facts()), most_(most) {}
  void refuse(const Stage& stage, const Machine&, Reasons& why) const override {
    if (stage.n > most_) why.emplace_back("more images than it counts");
  }
  std::vector<Tile> tiles(const Stage& stage, const Machine& m) const override {
    EXPECT_LE(stage.n, most_);
    return of_stage().tiles(stage, m);
  }
  Cost cost(const Stage& stage, const Tile& tile, const Machine& m) const override {
    EXPECT_LE(stage.n, most_);
    return of_stage().cost(stage, tile, m);
  }
  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile& tile,
                                    const Machine& m) const override {
    return std::make_unique<Run>(of_stage().prepare(stage, tile, m), most_);
  }

 private:
  /// Sees that no run has more, and that workspaces do not overlap what is copied.
  class Run final : public Prepared {
   public:
    Run(std::unique_ptr<Prepared> inner, Index most) : inner_(std::move(inner)), most_(most) {}
    std::string packing() const override { return inner_->packing(); }
    std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
      return inner_->pack(all);
    }
    void use(std::shared_ptr<const PackedWeights> weights) override {
      inner_->use(std::move(weights));
    }
    std::size_t workspace_bytes() const override { return own_bytes + inner_->workspace_bytes(); }
    Status run(const RunArgs& args) const noexcept override {
      if (args.n > most_) return {StatusCode::internal_error, "more images than at once"};
      std::memset(args.workspace, 0xA5, own_bytes);
      RunArgs inside = args;
      inside.workspace += own_bytes;
      const Status status = inner_->run(inside);
      std::memset(args.workspace, 0x5A, own_bytes);
      return status;
    }

   private:
    static constexpr std::size_t own_bytes = 1024;
    std::unique_ptr<Prepared> inner_;
    Index most_;
  };
  static const Kernel& of_stage() { return cpu::general(); }
  static KernelFacts facts() {
    KernelFacts facts = cpu::general().facts().called("limited", serves_everything);
    facts.arithmetic = "limited's";
    return facts;
  }
  Index most_;
};

PlanOptions named(std::string_view kernel) {
  PlanOptions options = plain();
  options.kernel = kernel;
  return options;
}

/// By a kernel that takes `most` images at once.
struct InPartsOf {
  Limited kernel;
  std::unique_ptr<Bound> bound;

  InPartsOf(const Stage& stage, Index most, const Tensor& weights) : kernel(most) {
    const Kernel* const table[] = {&kernel};
    const PlanOptions options = named("limited");
    const Machine machine = machine_for(options);
    Selection selection = select(stage, machine, options, nullptr, table);
    EXPECT_EQ(&selection.kernel(), &kernel);
    bound = std::make_unique<Bound>(stage, options, std::move(selection));
    const Parameters parameters{.w = weights.data<float>()};
    bound->set({&parameters, 1});
  }
  Status run(const Stage& stage, const Operands& operands) const {
    RunArgs args;
    Status status = bind_operands(stage, shapes_of(stage), {}, operands, args);
    return status.ok() ? bound->run(args, nullptr, {}) : status;
  }
};

/// What a run of the stage writes, and slices of x and y that lie in wider tensors, poisoned.
struct Case {
  Stage stage;
  RandomOperands random;
  Tensor wide_x, wide_y;
  Operands operands;

  Case(const Stage& given, bool slices)
      : stage(given), random(stage, 7, machine_for(plain())), operands(random.operands(stage, 0)) {
    if (stage.act.is_neuron()) {
      float* const v = random.membrane_in.data<float>();
      for (Index i = 0; i < random.membrane_in.elements(); ++i)
        v[i] = 0.125F * static_cast<float>(i % 7);
    }
    if (!slices) return;
    const auto widen = [](const TensorDescriptor& view, Tensor& wide, Index first) {
      std::vector<Index> shape(view.shape.begin(), view.shape.begin() + view.rank);
      const auto last = static_cast<std::size_t>(view.rank - 1);
      shape[last] += 5;
      wide = Tensor(view.dtype, shape);
      TensorView slice = wide.view();
      slice.shape[last] = view.shape[last];
      slice.data =
          static_cast<char*>(slice.data) + static_cast<std::size_t>(first) * size_of(view.dtype);
      return slice;
    };
    const TensorView x = widen(operands.x, wide_x, 3), y = widen(operands.y, wide_y, 2);
    copy_tensor(operands.x, x);
    operands.x = x, operands.y = y;
  }
  std::vector<Tensor*> written() {
    Tensor* const y = wide_y.view() ? &wide_y : &random.y;
    return {y, &random.pre, &random.act, &random.idx, &random.membrane_out};
  }
  void poison() {
    for (Tensor* tensor : written())
      if (tensor->view()) std::memset(tensor->data<char>(), 0xC3, tensor->bytes());
  }
};

std::vector<std::string> bytes_of(Case& one) {
  std::vector<std::string> all;
  for (const Tensor* tensor : one.written())
    all.push_back(tensor->view() ? std::string(tensor->data<char>(), tensor->bytes())
                                 : std::string());
  return all;
}

constexpr const char* cut_stages[] = {
    "n41h5w4c3k6r3pad1+bias+relu",
    "n41h5w4c3k6r3pad1+bias+relu+max2+keep(pre,act,idx)",
    "n41h5w4c3k6r3pad1nchw+bias+relu+max3s2p1+keep(idx)",
    "u8:n41h5w4c3k6r3pad1+norm+bias",
    "n41h5w4c3k6r3pad1+bias+lif(2,0.5)",
    "n41h5w4c3k6r3pad1+bias+lif(2,0.5)+t3+max2+keep(pre,act,idx)",
    "n41h5w4c3k6r3pad1+bias+if(0.5)+soft+t4+hold+max2",
    "n41h5w4c3k6r3pad1nchw+bias+lif(2,0.5)+t3+max2",
    "f16:n41h5w4c3k6r3pad1+bias+if(0.5)+t2+keep(act)",
    "n41h1w1c9k6r1+bias+if(0.5)+t5",
};

TEST(Parts, GiveTheBitsOfTheWhole) {
  for (const char* text : cut_stages) {
    for (const bool slices : {false, true}) {
      const Stage stage = parse_stage(text).normalised();
      if (slices && stage.layout == Layout::nchw) continue;
      Case one(stage, slices);
      const Plan whole(one.stage, one.random.weights, named("general"));
      one.poison();
      whole.run(one.operands).or_throw();
      const auto expected = bytes_of(one);
      for (const Index most : {1, 2, 7, 16, 20, 40, 41, 100}) {
        SCOPED_TRACE(testing::Message() << text << " at most " << most << " images at once"
                                        << (slices ? ", slices" : ""));
        const InPartsOf parts(one.stage, most, one.random.weights);
        one.poison();
        parts.run(one.stage, one.operands).or_throw();
        EXPECT_EQ(bytes_of(one), expected);
      }
    }
  }
}

TEST(Parts, TakeFewerImagesThanThePlan) {
  for (const char* text : cut_stages) {
    Stage stage = parse_stage(text).normalised();
    const Case all(stage, false);
    const InPartsOf parts(all.stage, 6, all.random.weights);
    for (const Index n : {1, 5, 6, 7, 40}) {
      SCOPED_TRACE(testing::Message() << text << " of " << n << " images");
      stage.n = n;
      Case fewer(stage, false);
      const Plan whole(fewer.stage, all.random.weights, named("general"));
      fewer.poison();
      whole.run(fewer.operands).or_throw();
      const auto expected = bytes_of(fewer);
      fewer.poison();
      RunArgs args;
      bind_operands(all.stage, shapes_of(all.stage), {}, fewer.operands, args).or_throw();
      parts.bound->run(args, nullptr, {}).or_throw();
      EXPECT_EQ(bytes_of(fewer), expected);
    }
  }
}

/// Membranes are read and written image by image: they may be the same memory.
TEST(Parts, UpdateMembranesInPlace) {
  Case one(parse_stage("n41h5w4c3k6r3pad1+bias+lif(2,0.5)+t3+max2").normalised(), false);
  const Plan whole(one.stage, one.random.weights, named("general"));
  whole.run(one.operands).or_throw();
  const auto expected = bytes_of(one);
  Tensor v = one.random.membrane_in.clone();
  Operands operands = one.operands;
  operands.membrane_in = operands.membrane_out = v;
  const InPartsOf parts(one.stage, 6, one.random.weights);
  RunArgs args;
  const Operands apart = one.operands;
  bind_operands(one.stage, shapes_of(one.stage), {}, apart, args).or_throw();
  args.membrane_in = v.data<float>(), args.membrane_out = v.data<float>();
  parts.bound->run(args, nullptr, {}).or_throw();
  EXPECT_EQ(std::string(v.data<char>(), v.bytes()), expected.back());
}

TEST(Parts, AreOfOneSizeInSixteens) {
  const Machine machine = machine_for(plain());
  const auto parts = [&](const char* text, Index most) {
    return part_of(Limited(most), parse_stage(text), machine);
  };
  const auto expect = [](const Parts& found, Index images, Index count, bool copied) {
    EXPECT_EQ(found.images, images);
    EXPECT_EQ(found.count, count);
    EXPECT_EQ(found.copied, copied);
  };
  expect(parts("n64h5c3k6r3", 64), 64, 1, false);
  expect(parts("n65h5c3k6r3", 64), 48, 2, false);
  expect(parts("n65h5c3k6r3", 50), 48, 2, false);
  expect(parts("n100h5c3k6r3", 17), 16, 7, false);
  expect(parts("n100h5c3k6r3", 15), 15, 7, false);
  expect(parts("n65h5c3k6r3+if(1)+t2", 64), 48, 2, true);
  expect(parts("n65h5c3k6r3+if(1)", 64), 48, 2, false);
  // What is copied is small: of an image of 16 MB and 64 MB of y fewer than the kernel takes.
  EXPECT_LE(parts("n65h1024w1024c4k16r1+if(1)+t2", 64).images, 2);
}

// A kernel that takes one image takes any number: n decides neither what fits nor what is chosen.
TEST(Parts, NDecidesNothing) {
  const Limited limited(5);
  const Kernel* const table[] = {&limited, &cpu::general()};
  const Machine machine = machine_for(plain());
  const Stage one = parse_stage("n1h5w4c3k6r3pad1+bias+relu");
  const Kernel& chosen = select(one, machine, plain(), nullptr, table).kernel();
  for (const Index n : {5, 6, 1000}) {
    Stage stage = one;
    stage.n = n;
    const Selection selection = select(stage, machine, plain(), nullptr, table);
    EXPECT_EQ(&selection.kernel(), &chosen) << n;
    EXPECT_TRUE(selection.verdicts.front().fits()) << n;
    EXPECT_TRUE(fits(limited, stage, machine)) << n;
  }
  // One that refuses an image refuses all.
  const Limited none(0);
  EXPECT_EQ(refusals_of_an_image(none, one, machine).size(), 1U);
}

TEST(Parts, AreExplained) {
  const Limited limited(16);
  const Kernel* const table[] = {&limited};
  const Machine machine = machine_for(plain());
  const Stage stage = parse_stage("n40h5w4c3k6r3pad1+bias+if(1)+t2");
  const Explanation e = explain(stage, machine, select(stage, machine, plain(), nullptr, table));
  EXPECT_EQ(e.parts.count, 3);
  const std::string text = to_text(e);
  EXPECT_NE(text.find("3 runs of at most 16 images"), std::string::npos) << text;
  EXPECT_NE(text.find("copied to workspace"), std::string::npos) << text;
  EXPECT_NE(to_json(e).find("\"parts\""), std::string::npos);
  EXPECT_EQ(to_text(explain(stage, plain(), {.measure = false})).find("parts"), std::string::npos);
}

/// Two stages by general, at most so many images at once.
class LimitedPair final : public Kernel {
 public:
  explicit LimitedPair(Index most) : Kernel(facts()), most_(most) {}

 private:
  struct Both final : PackedWeights {
    std::shared_ptr<const PackedWeights> of[2];
  };
  class Run final : public Prepared {
   public:
    Run(const Chain& chain, const Machine& m) : chain_(chain) {
      for (const Stage& stage : chain.stages)
        each_.push_back(cpu::general().prepare(stage, cpu::general().tiles(stage, m).front(), m));
    }
    std::string packing() const override { return "two"; }
    std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
      auto both = std::make_shared<Both>();
      for (std::size_t i = 0; i < 2; ++i) both->of[i] = each_[i]->pack(all.subspan(i, 1));
      return both;
    }
    void use(std::shared_ptr<const PackedWeights> weights) override {
      for (std::size_t i = 0; i < 2; ++i) each_[i]->use(static_cast<const Both&>(*weights).of[i]);
    }
    std::size_t workspace_bytes() const override {
      return std::max(each_[0]->workspace_bytes(), each_[1]->workspace_bytes());
    }
    Status run(const RunArgs& args) const noexcept override {
      const Stage &first = chain_.stages[0], &second = chain_.stages[1];
      if (args.n > first.n) return {StatusCode::internal_error, "more images than at once"};
      std::vector<float> between(static_cast<std::size_t>(shapes_of(first).y_elements));
      RunArgs one = args, two = args;
      one.later = two.later = {};
      one.y = between.data(), one.y_stride = dense_y(first, args.n);
      static_cast<StageArgs&>(two) = args.later.front();
      two.x = between.data(), two.x_stride = dense_x(second, args.n);
      const Status status = each_[0]->run(one);
      if (args.inner_y) std::copy_n(between.data(), args.n * 3 * 2 * 6, args.inner_y);
      return status.ok() ? each_[1]->run(two) : status;
    }

   private:
    OwnedChain chain_;
    std::vector<std::unique_ptr<Prepared>> each_;
  };
  static KernelFacts facts() {
    KernelFacts facts = cpu::general().facts().called("limited_pair", serves_everything);
    facts.chain = serves_every_chain;
    facts.least_stages = 2;
    return facts;
  }
  void refuse_chain(const Chain& chain, const Machine&, Reasons& why) const override {
    if (chain.front().n > most_) why.emplace_back("more images than it counts");
  }
  std::vector<Tile> chain_tiles(const Chain&, const Machine&) const override { return {{"one"}}; }
  Cost chain_cost(const Chain&, const Tile&, const Machine&) const override { return {1e-9}; }
  std::unique_ptr<Prepared> chain_prepare(const Chain& chain, const Tile&,
                                          const Machine& m) const override {
    return std::make_unique<Run>(chain, m);
  }
  Index most_;
};

TEST(Parts, OfAChainMoveTheOperandsOfAllStages) {
  const OwnedChain chain = parse_chain("n41h6w5c3k6r3pad1+bias+relu+max2 > n41h3w2c6k4r1+bias");
  const LimitedPair kernel(7);
  const Kernel* const table[] = {&kernel};
  const Machine machine = machine_for(plain());
  EXPECT_EQ(part_of(kernel, chain, machine).count, 6);
  const std::vector<Segment> segments = cut(chain, machine, plain(), [] {
    static const LimitedPair cheap(7);
    static const Kernel* const all[] = {&cheap, &cpu::general()};
    return std::span<const Kernel* const>(all);
  }());
  ASSERT_EQ(segments.size(), 1U);

  RandomOperands first(chain.stages[0], 1), second(chain.stages[1], 2);
  const Plan one(chain.stages[0], first.weights, named("general")),
      two(chain.stages[1], second.weights, named("general"));
  one.run(first.operands(chain.stages[0], 0)).or_throw();
  Operands of_second = second.operands(chain.stages[1], 0);
  of_second.x = first.y;
  two.run(of_second).or_throw();
  const auto bytes = [](const Tensor& t) { return std::string(t.data<char>(), t.bytes()); };
  const std::string y = bytes(second.y), between = bytes(first.y);

  Bound bound(chain, named("limited_pair"),
              select(chain, machine, named("limited_pair"), nullptr, table));
  const Parameters parameters[] = {{.w = first.weights.data<float>()},
                                   {.w = second.weights.data<float>()}};
  bound.set(parameters);
  for (Tensor* t : {&second.y, &first.y}) std::memset(t->data<char>(), 0xC3, t->bytes());
  const StageArgs later[] = {{.bias = second.bias.data<float>()}};
  RunArgs args;
  args.inner_y = first.y.data<float>();
  args.bias = first.bias.data<float>();
  args.n = 41;
  args.x = first.x.data<void>(), args.x_stride = dense_x(chain.stages[0], 41);
  args.y = second.y.data<void>(), args.y_stride = dense_y(chain.stages[1], 41);
  args.later = later;
  bound.run(args, nullptr, {}).or_throw();
  EXPECT_EQ(bytes(second.y), y);
  EXPECT_EQ(bytes(first.y), between);
}

}  // namespace
}  // namespace convoy
