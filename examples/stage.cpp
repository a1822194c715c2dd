// One stage as a program needs it: weights in PyTorch's order, fewer images than the plan has room
// for, an output inside a wider tensor, and an error as a value.
//
//     stage
#include <convoy/plan.hpp>
#include <cstdio>
#include <vector>

namespace {

using namespace convoy;

/// PyTorch stores filters as [K, C, R, S], Convoy reads [K, R, S, C]. Both are the same memory,
/// seen through other strides, so nothing has to be copied.
ConstTensorView from_pytorch(const std::vector<float>& weights, Index k, Index c, Index r,
                             Index s) {
  ConstTensorView view = ConstTensorView::of(weights.data(), {k, r, s, c});
  view.stride = {c * r * s, s, 1, r * s};
  return view;
}

}  // namespace

int main() try {
  // Up to four images of 8x8 pixels with 2 channels; 3 filters of 3x3; then bias, ReLU, 2x2 max.
  const Stage stage = parse_stage("n4h8c2k3r3pad1+bias+relu+max2");
  const Shapes shapes = shapes_of(stage);
  std::printf("%s: %lldx%lld pixels out\n", to_text(stage).c_str(),
              static_cast<long long>(shapes.out_h), static_cast<long long>(shapes.out_w));

  // Filter 0 takes channel 0, filter 1 takes channel 1, filter 2 adds 100 to the sum of both.
  std::vector<float> weights(3 * 2 * 3 * 3), bias = {0, 0, 100};
  const auto centre = [&](int k, int c) -> float& { return weights[(k * 2 + c) * 9 + 4]; };
  centre(0, 0) = centre(1, 1) = centre(2, 0) = centre(2, 1) = 1;
  const Plan plan(stage, from_pytorch(weights, 3, 2, 3, 3));

  // Two images only. Channel 0 counts pixels from 0 to 63, channel 1 is twice as large.
  const Index n = 2;
  Tensor x(DType::f32, {n, 8, 8, 2});
  for (Index i = 0; i < n * 64; ++i) {
    x.data<float>()[2 * i] = static_cast<float>(i % 64);
    x.data<float>()[2 * i + 1] = static_cast<float>(2 * (i % 64));
  }

  // The output is channels 5 to 7 of a tensor of 8, beside what another layer wrote there.
  Tensor wide(DType::f32, {n, shapes.out_h, shapes.out_w, 8});
  const TensorView y = wide.view().channels(5, 3);
  const TensorView bias_view = TensorView::of(bias.data(), {3});
  plan.run({.x = x, .bias = bias_view, .y = y}).or_throw();

  const float* pixel = static_cast<const float*>(y.data);  // the window of pixels 0, 1, 8 and 9
  std::printf("%s\n", describe(y).c_str());
  std::printf("first pixel: %.1f %.1f %.1f\n", pixel[0], pixel[1], pixel[2]);

  // `run` never throws. It says what is wrong before anything is written.
  const Status status = plan.run({.x = x, .y = y});
  std::printf("without a bias: %.*s\n  %s\n", static_cast<int>(to_text(status.code()).size()),
              to_text(status.code()).data(), status.message().c_str());
  return 0;
} catch (const convoy::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
