// The pair family on a GPU: two stages in one launch against two launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/gpu.hpp"
#include "core/shape_list.hpp"
#include "cuda/families.hpp"
#include "gpu_case.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

// A stage's y in the middle of poison.
struct FencedOutput {
  static constexpr Index fence = 4096;  // bytes before and behind
  Tensor block;
  TensorView y;

  explicit FencedOutput(Tensor& like)
      : block(DType::u8, {static_cast<Index>(like.bytes()) + 2 * fence}, gpu0), y(like.view()) {
    y.data = block.data<char>() + fence;
    poison();
  }
  void poison() {
    Tensor bytes(DType::u8, {block.elements()});
    std::fill_n(bytes.data<std::uint8_t>(), bytes.elements(), std::uint8_t{0xFF});
    copy_tensor(bytes, block);
  }
  bool fences_stand() const {
    const Tensor bytes = block.to({});
    const auto* begin = bytes.data<std::uint8_t>();
    const auto stands = [](const std::uint8_t* at) {
      return std::all_of(at, at + fence, [](std::uint8_t byte) { return byte == 0xFF; });
    };
    return stands(begin) && stands(begin + bytes.elements() - fence);
  }
};

// The pairs of tests/cuda/pair-stages.txt by their number: sanitize.py runs some alone.
class PairRun : public GpuTest, public testing::WithParamInterface<std::size_t> {};
const std::vector<OwnedChain>& chains() {
  static const std::vector<OwnedChain> all =
      read_chain_list(source_path("tests/cuda/pair-stages.txt"), true);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Gpu, PairRun, testing::Range<std::size_t>(0, 12));

TEST(Pairs, AllOfTheListAreRun) {
  EXPECT_EQ(chains().size(), 12U) << "raise the range of PairRun";
}

// On integers every order of summation gives the same bits, so that `general` judges; on other
// numbers one launch must round as two of `halo` do. The last image has the same bits alone.
TEST_P(PairRun, EveryTileGivesTheBitsOfTwoLaunches) {
  const Machine machine = gpu::machine(0);
  const Chain chain = chains()[GetParam()];
  const Stage &one = chain[0], &two = chain[1];
  SCOPED_TRACE(to_text(chain));
  const auto refusals = cuda::sm90::pair().refusals(chain, machine);
  if (machine.compute_capability != 90) GTEST_SKIP() << "skipped: " << refusals.front();
  ASSERT_EQ(refusals, std::vector<std::string>{});
  for (const Values values : {Values::integers, Values::normal}) {
    SCOPED_TRACE(values == Values::integers ? "integers" : "normal");
    const char* judge = values == Values::integers ? "general" : "halo";
    GpuCase first(one, values, gpu0), second(two, values, gpu0);
    const Plan plan(first.stage, first.w, options_for(gpu0, judge)),
        plan2(second.stage, second.w, options_for(gpu0, judge));
    Operands after = second.operands();
    after.x = first.y;
    plan.run(first.operands()).or_throw();
    plan2.run(after).or_throw();
    const std::vector<unsigned char> expected = second.outputs();

    const Index n = first.stage.n;
    const auto image = static_cast<std::ptrdiff_t>(expected.size()) / n;
    FencedOutput out(second.y);
    const Parameters parameters[] = {{.w = first.w.data<float>()}, {.w = second.w.data<float>()}};
    for (const Tile& tile : cuda::sm90::pair().tiles(chain, machine)) {
      SCOPED_TRACE(tile.name);
      const auto pair = cuda::sm90::pair().prepare(chain, tile, machine);
      pair->use(pair->pack(parameters));
      const auto bytes_of_run = [&](Index images_of_run, const ConstTensorView& x) {
        out.poison();
        const TensorView bias = first.bias, bias2 = second.bias;
        const StageArgs later{.bias = static_cast<const float*>(bias2.data)};
        RunArgs args;
        args.n = images_of_run;
        args.bias = static_cast<const float*>(bias.data);
        args.x = x.data;
        args.x_stride = dense_x(one, images_of_run);
        args.y = out.y.data;
        args.y_stride = dense_y(two, images_of_run);
        args.later = {&later, 1};
        pair->run(args).or_throw();
        EXPECT_TRUE(out.fences_stand());
        copy_tensor(out.y, second.y);
        return second.outputs();
      };
      EXPECT_EQ(bytes_of_run(n, first.x), expected);
      const auto alone = bytes_of_run(1, images(first.x.view(), n - 1, 1));
      EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + image, expected.end() - image))
          << "the last image alone";
    }
  }
}

}  // namespace
}  // namespace convoy
