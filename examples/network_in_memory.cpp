// A residual block from memory, without files: y = relu(conv2(conv1(s)) + s).
//
// A layer reads one or several layers, whose channels are put side by side. An addition is then a
// part of the second convolution: it reads conv1 and the stem, and its weights for the stem's
// channels are 1 at the centre of each channel's own filter and 0 elsewhere.
//
//     network_in_memory
#include <algorithm>
#include <cmath>
#include <convoy/network.hpp>
#include <cstdio>
#include <random>
#include <vector>

namespace {

using namespace convoy;
constexpr int channels = 8, size = 16, classes = 4;

std::vector<float> drawn(std::size_t count, std::mt19937& random, float spread) {
  std::uniform_real_distribution<float> values(-spread, spread);
  std::vector<float> numbers(count);
  std::generate(numbers.begin(), numbers.end(), [&] { return values(random); });
  return numbers;
}

/// Weights [K, C + K, 3, 3] of a layer that convolves C channels with `weights` [K, C, 3, 3] and
/// adds K more channels to the result.
std::vector<float> with_addition(const std::vector<float>& weights, int k, int c) {
  std::vector<float> wide(static_cast<std::size_t>(k * (c + k) * 9));
  for (int filter = 0; filter < k; ++filter) {
    std::copy_n(&weights[filter * c * 9], c * 9, &wide[filter * (c + k) * 9]);
    wide[(filter * (c + k) + c + filter) * 9 + 4] = 1;
  }
  return wide;
}

/// Filter 0 of the block at one pixel, by the formula above: what the network is compared with.
float by_hand(const std::vector<float>& weights, const float* conv1, const float* stem, int h,
              int w) {
  float sum = stem[(h * size + w) * channels];
  for (int c = 0; c < channels; ++c)
    for (int tap = 0; tap < 9; ++tap) {
      const int row = h + tap / 3 - 1, column = w + tap % 3 - 1;
      sum += weights[c * 9 + tap] * conv1[(row * size + column) * channels + c];
    }
  return std::max(sum, 0.0F);
}

}  // namespace

int main() try {
  const NetworkText text = parse_network(
      "input f32:h16c3\n"
      "stem k8r3pad1+relu\n"
      "conv1 k8r3pad1+relu\n"
      "conv2 k8r3pad1+relu from(conv1,stem)\n"
      "pool k8r1+relu+max16\n"
      "flatten\n"
      "fc k4\n",
      "residual block");
  std::mt19937 random(1);
  const auto stem = drawn(channels * 3 * 9, random, 0.3F),
             first = drawn(channels * channels * 9, random, 0.2F),
             second = drawn(channels * channels * 9, random, 0.2F),
             pool = drawn(channels * channels, random, 0.5F),
             fc = drawn(classes * channels, random, 1);
  const auto block = with_addition(second, channels, channels);
  // Parameters have the names and the order of PyTorch's state_dict.
  const Network network(
      text, {{"stem.weight", ConstTensorView::of(stem.data(), {channels, 3, 3, 3})},
             {"conv1.weight", ConstTensorView::of(first.data(), {channels, channels, 3, 3})},
             {"conv2.weight", ConstTensorView::of(block.data(), {channels, 2 * channels, 3, 3})},
             {"pool.weight", ConstTensorView::of(pool.data(), {channels, channels, 1, 1})},
             {"fc.weight", ConstTensorView::of(fc.data(), {classes, channels})}});
  for (const LayerReport& layer : network.layers())
    std::printf("%-6s %-28s %5lld weights\n", layer.name.c_str(), layer.stage.c_str(),
                static_cast<long long>(layer.parameters));

  const auto pixels = drawn(2 * size * size * 3, random, 1);
  const ConstTensorView images = ConstTensorView::of(pixels.data(), {2, size, size, 3});
  std::vector<std::int32_t> labels(2);
  network.run(images, {}, TensorView::of(labels.data(), {2})).or_throw();
  std::printf("labels: %d %d\n", labels[0], labels[1]);

  // The outputs of all layers, [1, N, H, W, K] each.
  const std::vector<Tensor> outputs = network.trace(images);
  const float expected = by_hand(second, outputs[1].data<float>(), outputs[0].data<float>(), 5, 7);
  const float found = outputs[2].data<float>()[(5 * size + 7) * channels];
  const bool same = std::abs(found - expected) < 1e-5F;
  std::printf("the block is relu(conv2(conv1(s)) + s): %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
} catch (const convoy::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
