// Drawn networks on a GPU: the program against the interpreter on the oracle, in f32, f16 and bf16.
#include <gtest/gtest.h>

#include "../network/drawn_case.hpp"
#include "gpu_case.hpp"

namespace convoy {
namespace {

class GpuDrawnGraphs : public GpuTest {
 protected:
  /// Types in turns; most kernels of a GPU are of 16 bits.
  static DrawOptions options_of(std::uint64_t number, bool strict) {
    const DType types[] = {DType::f16, DType::f32, DType::f16, DType::bf16};
    return {.strict = strict, .type = types[number % 4]};
  }
  static Device memory_of(std::uint64_t number) { return number % 3 == 2 ? Device{} : gpu0; }
};

TEST_F(GpuDrawnGraphs, TheProgramHasTheBitsOfTheInterpreter) {
  for (std::uint64_t number = 0; number < graphs_to_draw(200); ++number) {
    const DrawnCase one(number, options_of(number, true));
    SCOPED_TRACE(one.text());
    const std::vector<Numbers> expected = one.interpreted(one.plain());
    const Network network = one.drawn.builder.build(in_parts(gpu0));
    for (const Index n : {7, 1, 64})
      ASSERT_TRUE(same_bits(one.run(network, n, memory_of(number)), repeated(network, expected, n)))
          << n << " images";
  }
}

TEST_F(GpuDrawnGraphs, RunsAtTheSameTimeHaveTheBitsOfOne) {
  for (std::uint64_t number = 0; number < graphs_to_draw(200) / 10; ++number) {
    const DrawnCase one(number, options_of(number, false));
    SCOPED_TRACE(one.text());
    const Network network = one.drawn.builder.build(in_parts(gpu0));
    ASSERT_EQ(wrong_runs_at_once(one, network, one.run(network, 7), gpu0, memory_of(number)), 0);
  }
}

}  // namespace
}  // namespace convoy
