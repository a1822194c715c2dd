// The memory of programs: near the best that random orders find, and little on chains.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "draw_graph.hpp"
#include "network/builder.hpp"
#include "network/program.hpp"

namespace convoy {
namespace {

using network::Lifetime;

std::vector<Lifetime> lifetimes_of(const network::Program& program, Index n) {
  std::vector<Lifetime> lives;
  for (const network::Buffer& one : program.buffers)
    if (!one.of_caller) lives.push_back({program.image_bytes(one.owner) * n, one.first, one.last});
  return lives;
}

NetworkOptions options() {
  NetworkOptions options;
  options.threads = 1;
  return options;
}

TEST(Memory, IsNearTheBestOfRandomOrders) {
  std::mt19937 random(3);
  int tried = 0;
  for (std::uint64_t number = 0; tried < 40; ++number) {
    const DrawnGraph drawn = draw_graph(number, {.strict = false, .operators = 60});
    const network::Program program = network::make_program(graph_of(drawn.builder), options());
    const std::vector<Lifetime> lives = lifetimes_of(program, 64);
    if (lives.size() < 12) continue;
    ++tried;
    const Index ours = network::plan_memory(lives).bytes.value();
    Index best = ours;
    std::vector<std::size_t> order(lives.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int i = 0; i < 200; ++i) {
      std::shuffle(order.begin(), order.end(), random);
      best = std::min(best, network::plan_in_order(lives, order).bytes.value());
    }
    EXPECT_LE(static_cast<double>(ours), 1.05 * static_cast<double>(best)) << "graph " << number;
  }
}

TEST(Memory, OfAChainIsItsLargestNeighbours) {
  std::mt19937 random(4);
  const std::vector<float> ones(std::size_t{64} * 64 * 9, 0.125F);
  for (int round = 0; round < 20; ++round) {
    GraphBuilder g;
    const Index side = 8 + static_cast<Index>(random() % 8);
    auto x = g.input("x", DType::f32, {side, side, 3});
    Index channels = 3;
    for (int layer = 0; layer < 12; ++layer) {
      const Index filters = 1 + static_cast<Index>(random() % 64);
      x = g.activation(g.convolution(x, ConstTensorView::of(ones.data(), {filters, 3, 3, channels}),
                                     {}, {.pad = 1}),
                       relu);
      channels = filters;
    }
    g.output("y", x);
    const network::Program program = network::make_program(graph_of(g), options());
    std::vector<Lifetime> lives = lifetimes_of(program, 16);
    Index pair = 0;
    for (std::size_t i = 0; i + 1 < lives.size(); ++i)
      pair = std::max(pair, lives[i].bytes.value() + lives[i + 1].bytes.value());
    EXPECT_LE(static_cast<double>(network::plan_memory(lives).bytes.value()),
              1.5 * static_cast<double>(pair));
  }
}

}  // namespace
}  // namespace convoy
