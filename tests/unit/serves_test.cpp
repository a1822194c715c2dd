// What families declare that they serve: everything else is refused, in one wording, whatever the
// family's own code says. tests/layers/serves_test.py sees that a further member of a stage stops
// the build.
#include "core/serves.hpp"

#include <gtest/gtest.h>

#include "core/kernel.hpp"
#include "core/machine.hpp"

namespace convoy {
namespace {

// A kernel whose own code refuses nothing.
class Declares final : public Kernel {
 public:
  explicit Declares(const Serves& serves, std::optional<ServesChain> chain = {},
                    DeviceKind device = DeviceKind::cpu)
      : Kernel({.name = "declares",
                .arithmetic = "none",
                .device = device,
                .serves = serves,
                .chain = chain}) {}

 private:
  void refuse_chain(const Chain&, const Machine&, Reasons&) const override {}
  std::vector<Tile> chain_tiles(const Chain&, const Machine&) const override { return {{"one"}}; }
  Cost chain_cost(const Chain&, const Tile&, const Machine&) const override { return {1}; }
  std::unique_ptr<Prepared> chain_prepare(const Chain&, const Tile&,
                                          const Machine&) const override {
    return nullptr;
  }
};

constexpr Serves plain_convolutions{
    .types = halves,
    .layouts = Layout::nhwc,
    .strides = false,
    .dilation = false,
    .groups = false,
    .bias = false,
    .norm = false,
    .acts = Activation::Kind::none,
    .soft = false,
    .hold = false,
    .pools = PoolForm::none,
    .pools_first = false,
    .keep = nothing,
};

Reasons reasons(const char* text, const Serves& serves = plain_convolutions,
                DeviceKind device = DeviceKind::cuda) {
  return Declares(serves, {}, device).refusals(parse_stage(text), Machine());
}

TEST(Serves, EverythingThatIsNotDeclaredIsRefused) {
  const std::pair<const char*, Reasons> stages[] = {
      {"f16:n1h8c8k8r3pad1", {}},
      {"n1h8c8k8r3", {"x is f32, expected f16 or bf16", "y is f32, expected f16 or bf16"}},
      {"u8:n1h8c8k8r3", {"x is u8, expected f16 or bf16"}},
      {"f16:n1h8c8k8r3out(bf16)", {"y is bf16, expected f16"}},
      {"f16:n1h8c8k8r3nchw", {"the layout is nchw, expected nhwc"}},
      {"f16:n1h8c8k8r3stride2x1", {"the stride is 2x1, expected 1x1"}},
      {"f16:n1h8c8k8r3dil2", {"the dilation is 2x2, expected 1x1"}},
      {"f16:n1h8c8k8r3groups4", {"groups is 4, expected 1"}},
      {"f16:n1h8c8k8r3+bias+norm",
       {"bias is asked for, expected none", "norm is asked for, expected none"}},
      {"f16:n1h8c8k8r3+relu6", {"the activation is relu6, expected none"}},
      {"f16:n1h8c8k8r3+if(1)+soft+t2+hold",
       {"the activation is if, expected none", "soft is asked for, expected none",
        "hold is asked for, expected none"}},
      {"f16:n1h8c8k8r3+max3s2p1ceil",
       {"the pool is max 3x3 with stride 2x2, padding 1x1, ceil, expected none"}},
      {"f16:n1h8c8k8r3+max2+keep(pre,idx)",
       {"the pool is max 2x2 with stride 2x2, expected none",
        "keep is pre and idx, expected none"}},
  };
  for (const auto& [text, expected] : stages) EXPECT_EQ(reasons(text), expected) << text;
}

TEST(Serves, EverythingIsServedByGeneralsDeclaration) {
  for (const char* text :
       {"n1h8c8k8r3stride2dil2groups2nchw+bias+norm+leaky(-1)+max3s2p1ceil+keep(pre,act,idx)",
        "u8:n1h8c8k8r3out(bf16)+bias+lif(2,1)+soft+t2+hold+max2", "bf16:n1h9c8k8r1+max2ceil"})
    EXPECT_EQ(reasons(text, serves_everything), Reasons()) << text;
}

TEST(Serves, NamesWhatIsServed) {
  Serves several = plain_convolutions;
  several.types = Types({DType::f32, DType::u8}, DType::f32);
  several.acts = elementwise;
  several.keep = {Kept::pre, Kept::act};
  EXPECT_EQ(reasons("f16:n1h8c8k8r3+lif(2,1)", several, DeviceKind::cpu),
            (Reasons{"x is f16, expected f32 or u8", "y is f16, expected f32",
                     "the activation is lif, expected none, relu, relu6, clip or leaky"}));
  // The type of y that a stage of u8 has by default depends on the device.
  EXPECT_EQ(reasons("u8:n1h8c8k8r3", several, DeviceKind::cpu), Reasons());
  EXPECT_EQ(reasons("u8:n1h8c8k8r3", several, DeviceKind::cuda), Reasons{"y is f16, expected f32"});
  several.pools = any_pool;
  EXPECT_EQ(reasons("n1h8c8k8r3+max2+keep(act,idx)", several),
            Reasons{"keep is act and idx, expected pre and act"});
}

TEST(Serves, TellsPoolsApart) {
  const std::pair<const char*, PoolForm> stages[] = {
      {"n1h8c1k1r1", PoolForm::none},
      {"n1h9c1k1r1+max2", PoolForm::max2},
      {"n1h8c1k1r1+max2ceil", PoolForm::max2ceil_inside},
      {"n1h9w8c1k1r1+max2ceil", PoolForm::max2ceil_beyond},
      {"n1h8w9c1k1r1+max2ceil", PoolForm::max2ceil_beyond},
      {"n1h8c1k1r1+max3s2p1", PoolForm::max3s2p1},
      {"n1h8c1k1r1+max3s2p1ceil", PoolForm::other},
      {"n1h8c1k1r1+max3s2", PoolForm::other},
      {"n1h8c1k1r1+max2s1", PoolForm::other},
      {"n1h8c1k1r1+max2p1", PoolForm::other},
      {"n1h8c1k1r1+max2x3s2", PoolForm::other},
      {"n1h8c1k1r1+max2d2", PoolForm::other},
      {"n1h8c1k1r1+max3s2p1d2", PoolForm::other},
      {"n1h8c1k1r1+max4", PoolForm::other},
  };
  for (const auto& [text, form] : stages) EXPECT_EQ(form_of_pool(parse_stage(text)), form) << text;
}

TEST(Serves, NamesPools) {
  const auto served = [](Set<PoolForm> pools) {
    Serves serves = serves_everything;
    serves.pools = pools;
    const Reasons why = reasons("n1h9c1k1r1+max4", serves);
    return why.size() == 1 ? why.front().substr(why.front().find("expected")) : "";
  };
  EXPECT_EQ(served(PoolForm::none), "expected none");
  EXPECT_EQ(served(none_or_max2), "expected none or max 2x2 with stride 2 and no ceil");
  EXPECT_EQ(served(none_or_whole_max2),
            "expected none or max 2x2 with stride 2 and no window beyond the plane");
  EXPECT_EQ(served(none_or_any_max2), "expected none or max 2x2 with stride 2");
  EXPECT_EQ(served(none_or_max2 | PoolForm::max3s2p1),
            "expected none, max 2x2 with stride 2 and no ceil or max 3x3 with stride 2, padding 1 "
            "and no ceil");
}

// The kernel pools before it activates: leaky with a negative slope would turn the order around.
TEST(Serves, AnActivationBeforeAPoolMustBearTheOtherOrder) {
  Serves serves = serves_everything;
  serves.pools_first = true;
  EXPECT_EQ(reasons("n1h8c8k8r3+leaky(-1)", serves), Reasons());
  EXPECT_EQ(reasons("n1h8c8k8r3+leaky(0.5)+max2", serves), Reasons());
  EXPECT_EQ(reasons("n1h8c8k8r3+if(1)+max2", serves), Reasons()) << "spikes are pooled";
  EXPECT_EQ(reasons("n1h8c8k8r3+leaky(-1)+max2", serves),
            Reasons{"the activation before a pool is leaky, expected one that never decreases and "
                    "makes no NaN: the kernel pools first"});
}

TEST(Serves, OfAChainEveryStage) {
  const Declares pair(plain_convolutions, serves_every_chain, DeviceKind::cuda);
  EXPECT_EQ(pair.refusals(parse_chain("f16:n1h8c8k8r3 > f16:n1h6c8k8r1+relu", true), Machine()),
            Reasons{"stage 2: the activation is relu, expected none"});
}

TEST(Serves, OfAChainItsFacts) {
  constexpr ServesChain no_facts{
      .constants = false, .binary = false, .x_steps = false, .mean = false};
  const Declares one(serves_everything), chain(serves_everything, no_facts),
      any(serves_everything, serves_every_chain);
  const OwnedChain all =
      parse_chain("constants > spikes t2 > n1h1c8k8r1+if(1)+t2 > n1h1c8k8r1 > mean");
  EXPECT_EQ(one.refusals(all, Machine()), Reasons{"runs one stage, not a chain of them"});
  EXPECT_EQ(chain.refusals(all, Machine()),
            (Reasons{"a chain with constants is asked for, expected none",
                     "a chain that reads spikes is asked for, expected none",
                     "the number of time steps in x is 2, expected 1",
                     "a mean over the time steps is asked for, expected none"}));
  EXPECT_EQ(any.refusals(all, Machine()), Reasons());
}

TEST(Serves, AReasonOfTheKernelInsideIsGivenOnce) {
  Reasons why{"a", "b"};
  add_missing(why, {"b", "c"});
  EXPECT_EQ(why, (Reasons{"a", "b", "c"}));
}

// Sets are what declarations are made of.
static_assert(elementwise.has(Activation::Kind::none) && !elementwise.has(Activation::Kind::lif));
static_assert((elementwise & neurons).empty());
static_assert(every_output.without(Kept::idx).has(Kept::act));
static_assert(halves.has(DType::f16, DType::f16) && !halves.has(DType::f16, DType::bf16));
static_assert((halves & Types(DType::bf16, {DType::f32, DType::bf16})).x().has(DType::bf16));
static_assert(!(halves & Types(DType::bf16, {DType::f32, DType::bf16})).x().has(DType::f16));
static_assert((halves | Types(DType::f16, DType::f32)).x_of(DType::f32).has(DType::f16));
static_assert(!std::is_default_constructible_v<Serves>);

}  // namespace
}  // namespace convoy
