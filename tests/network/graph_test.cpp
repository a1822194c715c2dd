// Drawn networks: every pass, and the program, against the interpreter on the oracle.
#include <gtest/gtest.h>

#include "drawn_case.hpp"
#include "graph/passes.hpp"

namespace convoy {
namespace {

std::uint64_t graphs() {
  return graphs_to_draw(300);
}

/// Every third graph is of 16 bits.
DrawOptions options_of(std::uint64_t number, bool strict = true) {
  const std::uint64_t kind = number % 6;
  return {.strict = strict, .type = kind == 2 ? DType::f16 : kind == 5 ? DType::bf16 : DType::f32};
}

TEST(DrawnGraphs, EveryPassKeepsTheBits) {
  for (std::uint64_t number = 0; number < graphs(); ++number) {
    const DrawnCase one(number, options_of(number));
    SCOPED_TRACE(one.text());
    const std::vector<Numbers> expected = one.interpreted(one.plain());
    graph::Graph now = graph::without_dead(one.plain());
    ASSERT_TRUE(same_bits(one.interpreted(now), expected)) << "without_dead";
    now = graph::fold_batchnorm(std::move(now));
    ASSERT_TRUE(same_bits(one.interpreted(now), expected)) << "fold_batchnorm";
    now = graph::order_columns(std::move(now));
    ASSERT_TRUE(same_bits(one.interpreted(now), expected)) << "order_columns";
    // Kernels that serve everything, and kernels that serve no pool.
    const graph::Graph unpooled = graph::fuse(now, [](const Stage& stage) { return !stage.pool; });
    ASSERT_TRUE(same_bits(one.interpreted(unpooled), expected)) << "fuse without pools";
    now = graph::fuse(std::move(now), [](const Stage&) { return true; });
    ASSERT_TRUE(same_bits(one.interpreted(now), expected)) << "fuse";
    ASSERT_EQ(graph::to_text(graph::optimised(now, [](const Stage&) { return true; })),
              graph::to_text(now))
        << "the same passes again";
  }
}

TEST(DrawnGraphs, TheProgramHasTheBitsOfTheInterpreter) {
  for (std::uint64_t number = 0; number < graphs(); ++number) {
    const DrawnCase one(number, options_of(number));
    SCOPED_TRACE(one.text());
    const std::vector<Numbers> expected = one.interpreted(one.plain());
    const Network network = one.drawn.builder.build(in_parts());
    for (const Index n : {7, 1, 64})
      ASSERT_TRUE(same_bits(one.run(network, n), repeated(network, expected, n))) << n << " images";
  }
}

// Default arithmetic is not exact on integers; all runs of it have the same bits still.
TEST(DrawnGraphs, RunsAtTheSameTimeHaveTheBitsOfOne) {
  for (std::uint64_t number = 0; number < graphs() / 10; ++number) {
    const DrawnCase one(number, options_of(number, false));
    SCOPED_TRACE(one.text());
    const Network network = one.drawn.builder.build(in_parts());
    ASSERT_EQ(wrong_runs_at_once(one, network, one.run(network, 7)), 0);
  }
}

}  // namespace
}  // namespace convoy
