// A network whose stages are tuned on this machine, and where its time goes.
//
// `tune` measures the kernels and tiles that a plan may choose among and remembers the fastest, so
// results keep their bits. `Network::profile` gives the seconds of each layer.
//
//     CONVOY_CACHE=/tmp/cache tuned_network    the folder of the tuning cache; ~/.cache/convoy
//     without
#include <convoy/network.hpp>
#include <convoy/tune.hpp>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace convoy;
constexpr Index images_at_once = 8;

const char* const text =
    "input f32:h32c3\n"
    "conv1 k32r3pad1+bias+relu\n"
    "conv2 k32r3pad1+bias+relu+max2\n"
    "conv3 k64r3pad1+bias+relu+max2\n"
    "flatten\n"
    "fc k10+bias\n";

/// Weights that are all the same: this program looks at times only.
struct Parameters {
  std::map<std::string, std::vector<float>> numbers;
  NetworkParameters views;
  void add(const std::string& name, std::initializer_list<Index> shape) {
    const Index k = *shape.begin();
    auto& weight = numbers[name + ".weight"];
    auto& bias = numbers[name + ".bias"];
    bias.assign(static_cast<std::size_t>(k), 0.1F);
    views[name + ".bias"] = TensorView::of(bias.data(), {k});
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    weight.assign(static_cast<std::size_t>(count), 0.01F);
    views[name + ".weight"] = TensorView::of(weight.data(), shape);
  }
};

}  // namespace

int main() try {
  Parameters parameters;
  parameters.add("conv1", {32, 3, 3, 3});
  parameters.add("conv2", {32, 32, 3, 3});
  parameters.add("conv3", {64, 32, 3, 3});
  parameters.add("fc", {10, 64 * 8 * 8});
  const NetworkOptions options{.threads = 1, .batch = images_at_once};
  const auto make = [&] { return Network(parse_network(text, "mine"), parameters.views, options); };

  const NetworkTuneResult result = tune(make(), {}, 0.02);
  for (const TunedStage& tuned : result.stages) {
    const TuneRow& best = tuned.rows.front();
    std::printf("%-6s %-32s %2zu measured, best %s %s, %.1f us\n", tuned.layers.front().c_str(),
                tuned.stage.c_str(), tuned.rows.size(), best.kernel.c_str(), best.tile.c_str(),
                1e6 * best.median);
  }

  const Network network = make();  // finds what was saved
  const Tensor images(DType::f32, {1000, 32, 32, 3});
  network.warm(1000);
  std::vector<double> seconds(network.layers().size());
  network.profile(images, seconds).or_throw();
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  for (std::size_t i = 0; i < seconds.size(); ++i)
    std::printf("%-6s %5.1f %%  %s\n", network.layers()[i].name.c_str(), 100 * seconds[i] / all,
                network.layers()[i].kernel.c_str());
  return 0;
} catch (const convoy::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
