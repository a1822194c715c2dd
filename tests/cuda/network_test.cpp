// Networks on a GPU: layers that share a launch give the bits of two plans, and the labels are the
// CPU's.
#include "convoy/network.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "convoy/pinned.hpp"
#include "core/gpu.hpp"
#include "core/gpu_timing.hpp"
#include "gpu_case.hpp"
#include "io/dataset.hpp"
#include "io/idx.hpp"
#include "math/half.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

class GpuNetwork : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    path_ =
        std::filesystem::temp_directory_path() / ("convoy-gpu-network-" + std::to_string(getpid()));
    std::filesystem::create_directory(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  /// A parameter's file, and its values as read back. `taps` turns [K,C,taps] into [K,taps,C].
  Tensor parameter(const std::string& name, Index k, Index c, Index taps, float scale) {
    std::ofstream out(path_ / (name + ".txt"));
    out.precision(9);
    Tensor ours(DType::f32, {k, 1, taps, c});
    for (Index i = 0; i < k * c * taps; ++i) {
      const float value = scale * normal_(random_);
      out << value << "\n";
      ours.data<float>()[(i / (c * taps) * taps + i % taps) * c + i / taps % c] = value;
    }
    return ours;
  }

  std::filesystem::path path_;
  std::mt19937 random_{11};
  std::normal_distribution<float> normal_;
};

// n, h, w and the channels in, between and out of the pipeline conv3x3 + ReLU + max-pool, conv1x1 +
// ReLU + max-pool.
struct Pipeline {
  Index n, h, w, c, middle, k;
};
constexpr Pipeline pipelines[] = {{1, 8, 8, 16, 32, 16},
                                  {4, 32, 32, 64, 128, 256},
                                  {32, 56, 56, 64, 64, 256},
                                  {32, 56, 56, 64, 128, 256},
                                  {2, 28, 14, 64, 64, 128}};

TEST_F(GpuNetwork, SharedLaunchesGiveTheBitsOfTwoPlans) {
  for (const Pipeline& p : pipelines) {
    Stage first = parse_stage("f16:n1h8c16k32r3pad1+bias+relu+max2"),
          second = parse_stage("f16:n1h4c32k16r1+bias+relu+max2");
    first.n = second.n = p.n, first.h = p.h, first.w = p.w, first.c = p.c, first.k = p.middle;
    second.h = p.h / 2, second.w = p.w / 2, second.c = p.middle, second.k = p.k;
    SCOPED_TRACE(to_text(first) + ", " + to_text(second));

    std::ofstream(path_ / "network.txt")
        << "input f16:h" << p.h << "w" << p.w << "c" << p.c << "\nconv1 k" << p.middle
        << "r3pad1+bias+relu+max2\nconv2 k" << p.k << "r1+bias+relu+max2\n";
    const float scale = 1 / std::sqrt(static_cast<float>(9 * p.c)),
                scale2 = 1 / std::sqrt(static_cast<float>(p.middle));
    const Tensor w = parameter("conv1.weight", p.middle, p.c, 9, scale),
                 bias = parameter("conv1.bias", p.middle, 1, 1, 1),
                 w2 = parameter("conv2.weight", p.k, p.middle, 1, scale2),
                 bias2 = parameter("conv2.bias", p.k, 1, 1, 1);
    Tensor x(DType::f16, x_shape(first));
    for (Index i = 0; i < x.elements(); ++i)
      math::store(DType::f16, x.view().data, i, normal_(random_));

    // Two plans on the GPU.
    const Tensor on_gpu = x.to(gpu0);
    const auto weights = [](const Tensor& t, const Stage& s) {
      return ConstTensorView(t.view().data, DType::f32, {s.k, s.r, s.s, s.c});
    };
    const auto vector = [](const Tensor& t, Index k) {
      return ConstTensorView(t.view().data, DType::f32, {k}, t.view().device);
    };
    const Tensor b = bias.to(gpu0), b2 = bias2.to(gpu0);
    Tensor middle(DType::f16, y_shape(first), gpu0), y(DType::f16, y_shape(second), gpu0);
    const Plan plan(first, weights(w, first), options_for(gpu0, "halo")),
        plan2(second, weights(w2, second), options_for(gpu0, "halo"));
    plan.run({.x = on_gpu, .bias = vector(b, first.k), .y = middle}).or_throw();
    plan2.run({.x = middle, .bias = vector(b2, second.k), .y = y}).or_throw();
    const Tensor expected = y.to({});

    // As a network of two lines.
    NetworkOptions options;
    options.device = gpu0;
    options.batch = p.n;
    const Network network(path_, options);
    SCOPED_TRACE(network.layers()[0].fusion);
    std::vector<float> logits(static_cast<std::size_t>(y.elements()));
    ASSERT_EQ(network.classes() * p.n, y.elements());
    network.run(x, TensorView::of(logits.data(), {p.n, network.classes()}), {}).or_throw();
    for (Index i = 0; i < y.elements(); ++i)
      ASSERT_EQ(logits[static_cast<std::size_t>(i)],
                math::load(DType::f16, expected.view().data, i));
    const std::vector<Tensor> traced = network.trace(x);
    const Tensor between = middle.to({});
    for (Index i = 0; i < between.elements(); ++i)
      ASSERT_EQ(traced[0].data<float>()[i], math::load(DType::f16, between.view().data, i));

    // The CPU, which sums in another order: half an ulp of the rounding in the middle, and at the
    // end.
    if (p.n > 4) continue;
    options.device = {};
    const Network host(path_, options);
    std::vector<float> reference(logits.size());
    host.run(x, TensorView::of(reference.data(), {p.n, host.classes()}), {}).or_throw();
    float error = 0, largest = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      error = std::max(error, std::abs(logits[i] - reference[i]));
      largest = std::max(largest, std::abs(reference[i]));
    }
    EXPECT_LE(error, 2e-3F * largest);
  }
}

TEST_F(GpuNetwork, GivesTheLabelsOfTheCpu) {
  const std::string model = source_path("models/fashion-scnn");
  std::mt19937 random(3);
  constexpr Index n = 300;
  std::vector<std::uint8_t> pixels(n * 28 * 28);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random() % 256);
  const auto labels = [&](Device device) {
    NetworkOptions options;
    options.device = device;
    options.batch = 128;  // the last batch is not full
    const Network network(model, options);
    std::vector<std::int32_t> all(n);
    network.run(TensorView::of(pixels.data(), {n, 28, 28}), {}, TensorView::of(all.data(), {n}))
        .or_throw();
    return all;
  };
  const std::vector<std::int32_t> host = labels({}), device = labels(gpu0);
  int different = 0;
  for (std::size_t i = 0; i < host.size(); ++i) different += host[i] != device[i];
  EXPECT_LE(different, 1);  // a spike may differ where the membrane is next to the threshold
}

// From the device to the device on a stream of the caller's: the bits of a run from host to host,
// of u8 pixels and of f32 images that are normalised.
TEST_F(GpuNetwork, ReadsAndWritesOnTheDevice) {
  const std::string text = "mean(0.3) std(0.25)\nsteps 2\nconv1 k8r3+if(1)+max2\nflatten\nfc k5\n";
  parameter("conv1.weight", 8, 1, 9, 0.4F);
  parameter("fc.weight", 5, 8 * 6 * 6, 1, 0.1F);
  for (const DType type : {DType::u8, DType::f32}) {
    SCOPED_TRACE(to_text(type));
    std::ofstream(path_ / "network.txt") << "input " << to_text(type) << ":h14w14c1 " << text;
    NetworkOptions options;
    options.device = gpu0;
    options.batch = 16;  // the last batch is not full
    const Network network(path_, options);
    constexpr Index n = 37;
    Tensor images(type, {n, 14, 14, 1}), logits(DType::f32, {n, 5}), labels(DType::i32, {n});
    for (Index i = 0; i < images.elements(); ++i) {
      const auto pixel = static_cast<std::uint8_t>(random_() % 256);
      if (type == DType::u8)
        images.data<std::uint8_t>()[i] = pixel;
      else
        images.data<float>()[i] = static_cast<float>(pixel) / 255;
    }
    network.run(images, logits, labels).or_throw();

    const gpu::OwnedStream own(gpu0);
    Tensor on_device = images.to(gpu0), logits_there(DType::f32, {n, 5}, gpu0),
           labels_there(DType::i32, {n}, gpu0);
    network.run(on_device, logits_there, labels_there, own.stream()).or_throw();
    gpu::synchronize(gpu0, own.stream());
    const Tensor got = logits_there.to({}), got_labels = labels_there.to({});
    for (Index i = 0; i < logits.elements(); ++i)
      ASSERT_EQ(got.data<float>()[i], logits.data<float>()[i]) << i;
    for (Index i = 0; i < n; ++i)
      ASSERT_EQ(got_labels.data<std::int32_t>()[i], labels.data<std::int32_t>()[i]) << i;

    // From the host, to one output of each kind.
    Tensor cleared(DType::i32, {n}, gpu0);
    network.run(images, {}, cleared).or_throw();
    const Tensor again = cleared.to({});
    for (Index i = 0; i < n; ++i)
      ASSERT_EQ(again.data<std::int32_t>()[i], labels.data<std::int32_t>()[i]) << i;
  }
}

struct HostOutputs {
  std::vector<float> logits;
  std::vector<std::int32_t> labels;
  bool operator==(const HostOutputs&) const = default;
};

/// From the host and back on a stream.
HostOutputs run_from_host(const Network& network, const ConstTensorView& images,
                          Stream stream = {}) {
  const Index n = images.shape[0];
  HostOutputs out{std::vector<float>(static_cast<std::size_t>(n * network.classes()), -7),
                  std::vector<std::int32_t>(static_cast<std::size_t>(n), -7)};
  network
      .run(images, TensorView::of(out.logits.data(), {n, network.classes()}),
           TensorView::of(out.labels.data(), {n}), stream)
      .or_throw();
  return out;
}

/// The first n images of a tensor.
ConstTensorView first_images(ConstTensorView view, Index n) {
  view.shape[0] = n;
  return view;
}

class GpuHostPath : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    pixels_.emplace(DType::u8, std::vector<Index>{most, 28, 28, 1}, gpu0);
    values_.emplace(DType::f32, std::vector<Index>{most, 28, 28, 1}, gpu0);
    std::mt19937 random(3);
    for (Index i = 0; i < most * 784; ++i) {
      const auto pixel = static_cast<std::uint8_t>(random() % 256);
      pixels_->data<std::uint8_t>()[i] = pixel;
      values_->data<float>()[i] = (static_cast<float>(pixel) / 255.0F - 0.5F) / 0.5F;
    }
  }
  static Network network(bool spike_kernels) {
    NetworkOptions options;
    options.device = gpu0;
    options.spike_kernels = spike_kernels;
    return Network(source_path("models/fashion-scnn"), options);
  }

  static constexpr Index most = 24000;  // more than all slots hold
  std::optional<PinnedTensor> pixels_, values_;
};

// Pinned or not, pixels or values, cut at any place: the bits of a run on the device.
TEST_F(GpuHostPath, GivesTheBitsOfTheDevice) {
  const std::vector<std::uint8_t> pageable(pixels_->data<std::uint8_t>(),
                                           pixels_->data<std::uint8_t>() + most * 784);
  const std::vector<float> pageable_values(values_->data<float>(),
                                           values_->data<float>() + most * 784);
  for (const bool kernels : {true, false}) {
    SCOPED_TRACE(kernels ? "spike kernels" : "plans");
    const Network network = GpuHostPath::network(kernels);
    const Index all = kernels ? most : 3000;
    Tensor there(DType::u8, {all, 28, 28, 1}, gpu0);
    copy_tensor(first_images(*pixels_, all), there);
    Tensor logits(DType::f32, {all, 10}, gpu0), labels(DType::i32, {all}, gpu0);
    network.run(there, logits, labels).or_throw();
    const Tensor expected = logits.to({}), expected_labels = labels.to({});
    for (const Index n :
         {Index{1}, Index{83}, Index{84}, Index{255}, Index{256}, Index{257}, Index{1336},
          Index{1337}, Index{1338}, Index{2674}, Index{2675}, Index{21393}, most}) {
      if (n > all) continue;
      SCOPED_TRACE(n);
      HostOutputs same;
      same.logits.assign(expected.data<float>(), expected.data<float>() + n * 10);
      same.labels.assign(expected_labels.data<std::int32_t>(),
                         expected_labels.data<std::int32_t>() + n);
      EXPECT_EQ(run_from_host(network, first_images(*pixels_, n)), same);
      EXPECT_EQ(run_from_host(network, ConstTensorView::of(pageable.data(), {n, 28, 28})), same);
      EXPECT_EQ(run_from_host(network, first_images(*values_, n)), same);
      EXPECT_EQ(run_from_host(network, ConstTensorView::of(pageable_values.data(), {n, 28, 28})),
                same);
      // Labels alone, which small runs wait for in another way; images that are on the GPU.
      std::vector<std::int32_t> alone(static_cast<std::size_t>(n), -7);
      const TensorView to = TensorView::of(alone.data(), {n});
      network.run(first_images(*pixels_, n), {}, to).or_throw();
      EXPECT_EQ(alone, same.labels);
      std::fill(alone.begin(), alone.end(), -7);
      network.run(first_images(there, n), {}, to).or_throw();
      EXPECT_EQ(alone, same.labels);
    }
  }
}

// An image of other values runs through the layers of floats; its neighbours do not see it.
TEST_F(GpuHostPath, OtherValuesRunByThemselves) {
  const Network network = GpuHostPath::network(true);
  for (const Index n : {Index{3}, Index{5000}}) {
    SCOPED_TRACE(n);
    const ConstTensorView images = first_images(*values_, n);
    const HostOutputs before = run_from_host(network, images);
    float& value = values_->data<float>()[784 + 300];
    const float kept = std::exchange(value, 0.3F);
    const HostOutputs got = run_from_host(network, images);
    value = kept;
    EXPECT_EQ(run_from_host(network, images), before);
    for (std::size_t i = 0; i < got.logits.size(); ++i)
      if (i / 10 != 1) {
        ASSERT_EQ(got.logits[i], before.logits[i]) << i;
      }
    for (std::size_t i = 10; i < 20; ++i)  // close to it: one pixel differs
      EXPECT_NEAR(got.logits[i], before.logits[i], 5) << i;
  }
}

TEST_F(GpuHostPath, TwoNetworksRunOnTwoStreams) {
  const Network first = network(true), second = network(true);
  const HostOutputs expected = run_from_host(first, first_images(*pixels_, 5000));
  const auto runs = [&](const Network& network) {
    const gpu::OwnedStream own(gpu0);
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(run_from_host(network, first_images(*pixels_, 5000), own.stream()), expected);
  };
  std::thread other([&] { runs(first); });
  runs(second);
  other.join();
}

TEST_F(GpuHostPath, InAGraphAllMustBeOnTheDevice) {
  const Network network = GpuHostPath::network(true);
  const HostOutputs expected = run_from_host(network, first_images(*pixels_, 300));
  Tensor there(DType::u8, {300, 28, 28, 1}, gpu0);
  copy_tensor(first_images(*pixels_, 300), there);
  Tensor labels(DType::i32, {300}, gpu0);
  Status from_host;
  gpu::Graph graph(gpu0, [&](Stream stream) {
    network.run(there, {}, labels, stream).or_throw();
    from_host = network.run(first_images(*pixels_, 300), {}, labels, stream);
  });
  EXPECT_EQ(from_host.code(), StatusCode::invalid_operand);
  EXPECT_NE(from_host.message().find("captured"), std::string::npos) << from_host.message();
  graph.replay(1);
  const Tensor got = labels.to({});
  EXPECT_TRUE(std::equal(expected.labels.begin(), expected.labels.end(), got.data<std::int32_t>()));
}

TEST_F(GpuHostPath, WarmRunsKeepNoFurtherMemory) {
  const Network network = GpuHostPath::network(true);
  network.warm(10000);
  const auto runs = [&] {
    for (const Index n : {Index{1}, Index{10000}, most})
      run_from_host(network, first_images(*values_, n));
  };
  EXPECT_EQ(memory_kept_by(runs), 0);
}

TEST_F(GpuHostPath, FloatsOnTheDeviceAreRefused) {
  const Network network = GpuHostPath::network(true);
  Tensor images(DType::f32, {2, 28, 28, 1}, gpu0);
  const Status status = network.run(images, {}, {});
  EXPECT_EQ(status.code(), StatusCode::invalid_operand);
  EXPECT_NE(status.message().find("on the host"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace convoy
