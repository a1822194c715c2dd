// Which weight each packed value is, from kernels that only move them.
#include "plan/repack.hpp"

#include <gtest/gtest.h>

namespace convoy {
namespace {

/// Reversed, with a zero after every third value.
class Moves final : public Prepared {
 public:
  explicit Moves(Index count) : count_(count) {}
  std::string packing() const override { return "moves"; }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters>) const override {
    return nullptr;
  }
  void use(std::shared_ptr<const PackedWeights>) override {}
  Status run(const RunArgs&) const noexcept override { return {}; }
  std::vector<float> laid_out(std::size_t, const float* from) const override {
    std::vector<float> all;
    for (Index i = count_; i-- > 0;) {
      all.push_back(from[i]);
      if (i % 3 == 0) all.push_back(0);
    }
    return all;
  }

 private:
  Index count_;
};

TEST(Repack, FindsTheSourceOfEachValue) {
  // More than fp32 counts exactly, and sizes around the digits that numbers are split into.
  constexpr Index digit = Index{1} << 20;
  for (const Index count :
       {Index{1}, Index{5}, digit - 1, digit, digit + 1, Index{17} * digit + 3}) {
    SCOPED_TRACE(count);
    const std::vector<Index> all = sources_of(Moves(count), 0, count);
    std::size_t at = 0;
    for (Index i = count; i-- > 0;) {
      ASSERT_EQ(all[at++], i);
      if (i % 3 == 0) {
        ASSERT_EQ(all[at++], -1);
      }
    }
    EXPECT_EQ(at, all.size());
  }
}

TEST(Repack, IsRefusedOnTheCpu) {
  Plan plan(parse_stage("n1h4c2k2r3"));
  const Tensor w(DType::f32, w_shape(plan.stage()));
  try {
    plan.repack(w);
    FAIL() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("set_weights"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace convoy
