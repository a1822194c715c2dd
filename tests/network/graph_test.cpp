// Drawn networks: every pass, and the program, against the interpreter on the oracle.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "draw_graph.hpp"
#include "graph/interpret.hpp"
#include "graph/passes.hpp"
#include "network/builder.hpp"

namespace convoy {
namespace {

/// How many graphs; CONVOY_GRAPHS asks for another number.
std::uint64_t graphs() {
  const char* const given = std::getenv("CONVOY_GRAPHS");
  return given ? std::strtoull(given, nullptr, 10) : 300;
}

using Numbers = std::vector<float>;

struct Case {
  explicit Case(std::uint64_t number, bool strict = true)
      : name("graph " + std::to_string(number)), drawn(draw_graph(number, strict)) {
    verify::Random random(number + 1000000);
    for (const std::vector<Index>& axes : drawn.input_axes) {
      Index elements = images;
      for (const Index size : axes) elements *= size;
      Numbers& x = inputs.emplace_back();
      for (Index i = 0; i < elements; ++i) x.push_back(static_cast<float>(random.between(-3, 3)));
    }
  }
  const graph::Graph& plain() const { return graph_of(drawn.builder); }

  /// The outputs of a graph by the interpreter, all images.
  std::vector<Numbers> interpreted(const graph::Graph& graph) const {
    std::vector<ConstTensorView> views;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::vector<Index> shape = drawn.input_axes[i];
      shape.insert(shape.begin(), images);
      views.push_back(ConstTensorView::of(inputs[i].data(), shape));
    }
    Threads threads(1);
    const std::vector<Tensor> values = graph::interpret(graph, views, threads);
    std::vector<Numbers> outputs;
    for (const graph::ValueId id : graph.outputs)
      outputs.emplace_back(values[id].data<float>(),
                           values[id].data<float>() + values[id].elements());
    return outputs;
  }

  static constexpr Index images = 7;
  std::string name;
  DrawnGraph drawn;
  std::vector<Numbers> inputs;
};

/// The outputs of a run of n images: image i is image i % 7 of the case.
std::vector<Numbers> run(const Network& network, const Case& one, Index n) {
  std::vector<Numbers> x, y;
  std::vector<NamedInput> inputs;
  std::vector<NamedOutput> outputs;
  x.reserve(one.inputs.size());
  for (std::size_t i = 0; i < one.inputs.size(); ++i) {
    const std::size_t image = one.inputs[i].size() / Case::images;
    Numbers& all = x.emplace_back();
    for (Index at = 0; at < n; ++at) {
      const auto from =
          one.inputs[i].begin() +
          static_cast<std::ptrdiff_t>(static_cast<std::size_t>(at % Case::images) * image);
      all.insert(all.end(), from, from + static_cast<std::ptrdiff_t>(image));
    }
    std::vector<Index> shape = one.drawn.input_axes[i];
    shape.insert(shape.begin(), n);
    inputs.push_back({network.inputs()[i].name, ConstTensorView::of(all.data(), shape)});
  }
  y.reserve(network.outputs().size());
  for (const Port& port : network.outputs()) {
    std::vector<Index> shape = port.axes;
    shape.insert(shape.begin(), n);
    if (port.steps > 0) shape.insert(shape.begin(), port.steps);
    std::size_t elements = 1;
    for (const Index size : shape) elements *= static_cast<std::size_t>(size);
    y.emplace_back(elements, -77.0F);
    outputs.push_back({port.name, TensorView(y.back().data(), port.dtype, shape)});
  }
  network.run(inputs, outputs, {}).or_throw();
  return y;
}

/// What a run of n images must give, by the outputs of the seven.
std::vector<Numbers> repeated(const Network& network, const std::vector<Numbers>& seven, Index n) {
  std::vector<Numbers> all;
  for (std::size_t i = 0; i < seven.size(); ++i) {
    const auto steps = static_cast<std::size_t>(std::max<Index>(network.outputs()[i].steps, 1));
    const std::size_t image = seven[i].size() / steps / Case::images;
    Numbers& y = all.emplace_back();
    for (std::size_t t = 0; t < steps; ++t)
      for (Index at = 0; at < n; ++at) {
        const auto from =
            seven[i].begin() +
            static_cast<std::ptrdiff_t>(
                (t * Case::images + static_cast<std::size_t>(at % Case::images)) * image);
        y.insert(y.end(), from, from + static_cast<std::ptrdiff_t>(image));
      }
  }
  return all;
}

bool same_bits(const std::vector<Numbers>& a, const std::vector<Numbers>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

NetworkOptions one_thread() {
  NetworkOptions options;
  options.threads = 1;
  options.batch = 16;  // a run of 64 images is made in parts
  return options;
}

TEST(DrawnGraphs, EveryPassKeepsTheBits) {
  for (std::uint64_t number = 0; number < graphs(); ++number) {
    const Case one(number);
    SCOPED_TRACE(one.name + "\n" + graph::to_text(one.plain()));
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
    const Case one(number);
    SCOPED_TRACE(one.name + "\n" + graph::to_text(one.plain()));
    const std::vector<Numbers> expected = one.interpreted(one.plain());
    const Network network = one.drawn.builder.build(one_thread());
    for (const Index n : {7, 1, 64})
      ASSERT_TRUE(same_bits(run(network, one, n), repeated(network, expected, n)))
          << n << " images";
  }
}

// Default arithmetic is not exact on integers; all runs of it have the same bits still.
TEST(DrawnGraphs, RunsAtTheSameTimeHaveTheBitsOfOne) {
  for (std::uint64_t number = 0; number < graphs() / 10; ++number) {
    const Case one(number, false);
    SCOPED_TRACE(one.name + "\n" + graph::to_text(one.plain()));
    const Network network = one.drawn.builder.build(one_thread());
    const std::vector<Numbers> seven = run(network, one, 7);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int round = 0; round < 3; ++round) {
          const Index n = (t + round) % 3 == 0 ? 7 : (t + round) % 3 == 1 ? 1 : 64;
          if (!same_bits(run(network, one, n), repeated(network, seven, n))) ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace convoy
