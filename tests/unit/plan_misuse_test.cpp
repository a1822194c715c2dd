// Plans and networks in the hands of a caller who does what they should not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "convoy/network.hpp"
#include "convoy/plan.hpp"
#include "core/failure.hpp"
#include "ready_plan.hpp"
#include "verify/source_path.hpp"

namespace convoy {
namespace {

constexpr Index most_index = std::numeric_limits<Index>::max();

TEST(Status, HasACodeAndACleanMessage) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), StatusCode::ok);
  EXPECT_EQ(Status().message(), "");
  const Status status(StatusCode::busy, "a\x1b[31mb\nc");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::busy);
  EXPECT_EQ(status.message(), "a?[31mb\nc");
}

TEST(Status, SaysOfAnExceptionWhatItIs) {
  const auto status_of = [](const auto& raise) {
    try {
      raise();
    } catch (...) {
      return current_failure();
    }
    return Status();
  };
  const Status error = status_of([] { throw DeviceError("cudaMemcpy: an illegal address"); });
  EXPECT_EQ(error.code(), StatusCode::device_error);
  EXPECT_EQ(error.message(), "cudaMemcpy: an illegal address");
  EXPECT_EQ(status_of([] { throw std::bad_alloc(); }).code(), StatusCode::out_of_memory);
  EXPECT_EQ(status_of([] { throw std::length_error("x"); }).code(), StatusCode::out_of_memory);
  const Status other = status_of([] { throw std::logic_error("no such thing"); });
  EXPECT_EQ(other.code(), StatusCode::internal_error);
  EXPECT_EQ(other.message(), "no such thing");
  EXPECT_EQ(status_of([] { throw 1; }).code(), StatusCode::internal_error);
}

// One rule: `run` is noexcept and returns a Status; everything else throws.
static_assert(noexcept(std::declval<const Plan&>().run(std::declval<const Operands&>())));
static_assert(std::is_same_v<Status, decltype(std::declval<const Plan&>().run({}))>);
static_assert(std::is_void_v<decltype(std::declval<Plan&>().set_weights({}))>);
static_assert(std::is_void_v<decltype(std::declval<Plan&>().use({}))>);
static_assert(std::is_void_v<decltype(std::declval<Plan&>().repack({}))>);

TEST(Plan, StatusesHaveCodes) {
  ReadyPlan setup("n1h4c2k2r3+bias");
  EXPECT_EQ(setup.plan.run({}).code(), StatusCode::invalid_operand);
  const Plan bare(setup.stage, plain());
  EXPECT_EQ(bare.run(setup.operands()).code(), StatusCode::no_weights);
  EXPECT_EQ(setup.plan.run(setup.operands()).code(), StatusCode::ok);
}

TEST(Plan, MovedFromSaysSo) {
  ReadyPlan setup("n1h4c2k2r3+bias");
  Plan there = std::move(setup.plan);
  const Plan& gone = setup.plan;
  EXPECT_NE(gone.run(setup.operands()).message().find("this Plan was moved from"),
            std::string::npos);
  EXPECT_EQ(gone.run(setup.operands()).code(), StatusCode::moved_from);
  EXPECT_THROW(gone.stage(), Error);
  EXPECT_THROW(gone.shapes(), Error);
  EXPECT_THROW(static_cast<void>(gone.device()), Error);
  EXPECT_THROW(gone.kernel(), Error);
  EXPECT_THROW(gone.tile(), Error);
  EXPECT_THROW(gone.arithmetic(), Error);
  EXPECT_THROW(static_cast<void>(gone.threads()), Error);
  EXPECT_THROW(static_cast<void>(gone.workspace_bytes()), Error);
  EXPECT_THROW(gone.explain(), Error);
  EXPECT_THROW(gone.explain_json(), Error);
  EXPECT_THROW(setup.plan.set_weights(setup.w), Error);
  EXPECT_THROW(gone.pack(setup.w), Error);
  EXPECT_THROW(setup.plan.use(there.pack(setup.w)), Error);
  EXPECT_THROW(gone.packing(), Error);
  EXPECT_TRUE(there.run(setup.operands()).ok());
  Plan& same = there;
  there = std::move(same);
  EXPECT_TRUE(there.run(setup.operands()).ok());
  setup.plan = std::move(there);
  EXPECT_TRUE(setup.plan.run(setup.operands()).ok());
}

TEST(Plan, RefusesOperandsOfAnyContent) {
  for (const char* text :
       {"n2h6c8k16r3pad1+bias", "n2h6c8k16r3pad1nchw+bias", "n2h6c8k16r3pad1+bias+if(1)+t2"}) {
    ReadyPlan setup(text);
    const Operands good = setup.operands();
    ASSERT_TRUE(setup.plan.run(good).ok());
    const auto check = [&](auto Operands::*field) {
      const auto refused = [&](const auto& spoil, std::string_view part) {
        Operands operands = good;
        spoil(operands.*field);
        const std::string message = setup.plan.run(operands).message();
        EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
      };
      for (const int rank : {-1, 0, 6, 9, std::numeric_limits<int>::max()})
        refused([&](auto& view) { view.rank = rank; }, rank == 0 ? "found" : "a view of rank");
      refused([](auto& view) { view.dtype = static_cast<DType>(77); }, "type 77");
      refused([](auto& view) { view.device.index = 3; }, "it is on cpu:3, expected cpu");
      refused([](auto& view) { view.device.kind = static_cast<DeviceKind>(9); }, "kind 9");
      refused([](auto& view) { view.data = nullptr; }, "not given");
      const auto rank = static_cast<std::size_t>((good.*field).rank);
      for (const Index size : {Index{-1}, Index{0}, std::numeric_limits<Index>::min(), most_index})
        for (std::size_t axis = 0; axis < rank; ++axis)
          refused([&](auto& view) { view.shape[axis] = size; },
                  size == 0 && axis + 4 == rank ? "images, but x has" : "found");
      for (const Index stride : {Index{-1}, std::numeric_limits<Index>::min(), most_index,
                                 Index{1} << 59, Index{1} << 61, most_index / 2})
        refused([&](auto& view) { view.stride.fill(stride); }, "strides");
    };
    check(&Operands::x), check(&Operands::bias), check(&Operands::y);
  }
}

TEST(Plan, RefusesAWorkspaceInAnOperand) {
  PlanOptions options = plain();
  options.kernel = "winograd2";
  ReadyPlan setup("n2h20c16k16r3pad1+bias", options);
  ASSERT_GT(setup.plan.workspace_bytes(), 0U);
  const std::size_t bytes = setup.plan.workspace_bytes();
  Tensor memory(DType::u8, {static_cast<Index>(bytes) + setup.x.elements() * 4});
  Operands operands = setup.operands();
  operands.workspace = memory.data<char>();
  operands.x.data = memory.data<char>() + bytes;  // right behind it
  EXPECT_TRUE(setup.plan.run(operands).ok()) << setup.plan.run(operands).message();
  operands.x.data = memory.data<char>() + bytes - 4;
  EXPECT_NE(setup.plan.run(operands).message().find("workspace and x overlap"), std::string::npos);
  operands = setup.operands();
  operands.workspace = setup.y.data<char>();
  EXPECT_NE(setup.plan.run(operands).message().find("workspace and y overlap"), std::string::npos);
  EXPECT_EQ(setup.plan.run(operands).code(), StatusCode::invalid_operand);
}

TEST(Plan, WithoutAWorkspaceOfItsOwnWantsOneForEachRun) {
  PlanOptions options = plain();
  options.kernel = "winograd2";
  ReadyPlan owner("n2h20c16k16r3pad1+bias", options);
  owner.plan.run(owner.operands()).or_throw();
  options.owns_workspace = false;
  ReadyPlan setup("n2h20c16k16r3pad1+bias", options);
  const std::size_t bytes = setup.plan.workspace_bytes();
  ASSERT_GT(bytes, 0U);
  Operands operands = setup.operands();
  const Status none = setup.plan.run(operands);
  EXPECT_EQ(none.code(), StatusCode::no_workspace);
  EXPECT_NE(none.message().find(std::to_string(bytes) + " bytes"), std::string::npos)
      << none.message();
  Tensor memory(DType::u8, {static_cast<Index>(bytes)});
  operands.workspace = memory.data<char>();
  setup.plan.run(operands).or_throw();
  EXPECT_EQ(std::memcmp(setup.y.data<float>(), owner.y.data<float>(), owner.y.bytes()), 0);
}

TEST(Plan, WeightsOfAnotherTypeAreNoOtherOrder) {
  const Stage stage = parse_stage("n1h5c3k2r3");  // [2,3,3,3] in either order
  try {
    Plan(stage, Tensor(DType::f16, w_shape(stage)), plain());
    ADD_FAILURE() << "f16 weights of an f32 stage were taken";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("PyTorch"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("convert the weights"), std::string::npos);
  }
}

TEST(Plan, RefusesWeightsOfAnyContent) {
  ReadyPlan setup("n1h4c2k2r3");
  const auto refused = [&](const auto& spoil) {
    TensorView weights = setup.w;
    spoil(weights);
    EXPECT_THROW(setup.plan.set_weights(weights), Error);
  };
  refused([](TensorView& view) { view.rank = 9; });
  refused([](TensorView& view) { view.rank = -1; });
  refused([](TensorView& view) { view.dtype = static_cast<DType>(77); });
  refused([](TensorView& view) { view.shape[0] = -2; });
  refused([](TensorView& view) { view.device.index = 1; });
  for (const Index stride : {std::numeric_limits<Index>::min(), most_index, most_index / 2})
    refused([&](TensorView& view) { view.stride[0] = stride; });
  // The weights from before are still there.
  EXPECT_TRUE(setup.plan.run(setup.operands()).ok());
  TensorView weights = setup.w;
  weights.shape[4] = 5;  // beyond its rank: means nothing
  setup.plan.set_weights(weights);
}

TEST(Plan, KnowsWeightsInPyTorchsOrder) {
  ReadyPlan setup("n1h4c2k3r1");
  const auto message_of = [&](std::initializer_list<Index> shape) {
    try {
      setup.plan.set_weights(TensorView::of(setup.w.data<float>(), shape));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(message_of({3, 1, 1, 2}), "none");
  EXPECT_NE(message_of({3, 2, 1, 1}).find("These have PyTorch's"), std::string::npos);
  EXPECT_NE(message_of({2, 3, 1, 1}).find("Check the stage's sizes"), std::string::npos);
  EXPECT_NE(message_of({3, 2}).find("Check the stage's sizes"), std::string::npos);
}

TEST(Plan, RefusesDevicesThatAreNone) {
  const Stage stage = parse_stage("n1h4c2k2r3");
  for (const Device device : {Device{DeviceKind::cpu, 3}, Device{static_cast<DeviceKind>(9), 0}}) {
    PlanOptions options;
    options.device = device;
    EXPECT_THROW(Plan(stage, options), Error);
  }
}

// A folder with a network of one linear layer.
class Misused : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("convoy-misused-" + std::to_string(getpid()));
    std::filesystem::create_directory(path_);
    write("network.txt", "input u8:h2w2c1\nflatten\nfc k3\n");
    write("fc.weight.txt", "1 2 3 4 5 6 7 8 9 10 11 12\n");
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  std::string error_of(const NetworkOptions& options) const {
    try {
      const Network network(path_, options);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::filesystem::path path_;
};

TEST_F(Misused, BatchesThatFitNowhere) {
  NetworkOptions options;
  options.threads = 1;
  for (const Index batch : {Index{1} << 60, most_index, Index{1} << 31, Index{-1}}) {
    options.batch = batch;
    const std::string error = error_of(options);
    EXPECT_NE(error.find("batch " + std::to_string(batch)), std::string::npos) << error;
    EXPECT_NE(error.find("expected 1 to 2147483647"), std::string::npos) << error;
  }
  // In bounds, but with the steps folded into n it is not.
  write("network.txt", "input f32:h2w2c1\nsteps 9\nc1 k1r1+if(1)\nflatten\nfc k3\n");
  write("c1.weight.txt", "1\n");
  options.batch = Index{1} << 30;
  options.spike_kernels = false;
  EXPECT_NE(error_of(options).find("batch 1073741824"), std::string::npos) << error_of(options);
  // What lies between the layers is larger than any memory.
  write("network.txt", "input f32:h4000w4000c1\nc1 k20r1+relu\n");
  write("c1.weight.txt", "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n");
  options.batch = (Index{1} << 31) - 1;
  EXPECT_NE(error_of(options).find("no memory for the more than 2^60 bytes"), std::string::npos)
      << error_of(options);
}

TEST_F(Misused, ThreadsAndDevices) {
  NetworkOptions options;
  options.threads = 4097;
  EXPECT_NE(error_of(options).find("threads: found 4097, expected 1 to 4096"), std::string::npos);
  options.threads = 1;
  options.device.index = 2;
  EXPECT_NE(error_of(options).find("cpu:2"), std::string::npos) << error_of(options);
}

TEST_F(Misused, NetworkMovedFromSaysSo) {
  NetworkOptions options;
  options.threads = 1;
  Network network(path_, options);
  const std::vector<std::uint8_t> pixels(4, 1);
  std::vector<float> logits(3);
  const ConstTensorView images = ConstTensorView::of(pixels.data(), {1, 2, 2});
  const TensorView out = TensorView::of(logits.data(), {1, 3});
  Network there = std::move(network);
  EXPECT_NE(network.run(images, out, {}).message().find("this Network was moved from"),
            std::string::npos);
  EXPECT_THROW(network.text(), Error);
  EXPECT_THROW(static_cast<void>(network.classes()), Error);
  EXPECT_THROW(static_cast<void>(network.parameters()), Error);
  EXPECT_THROW(static_cast<void>(network.threads()), Error);
  EXPECT_THROW(network.layers(), Error);
  std::vector<double> seconds;
  EXPECT_THROW(static_cast<void>(network.profile(images, seconds)), Error);
  EXPECT_THROW(network.trace(images), Error);
  EXPECT_TRUE(there.run(images, out, {}).ok());
}

void check_operands(const Network& network, Index side, Index classes) {
  const auto values = static_cast<std::size_t>(side * side);
  std::vector<std::uint8_t> memory(4096 + 4 * values);
  std::vector<float> logits(64);
  std::vector<std::int32_t> labels(4);
  const TensorView images = TensorView::of(memory.data(), {2, side, side});
  const TensorView out = TensorView::of(logits.data(), {2, classes});
  const TensorView label = TensorView::of(labels.data(), {2});
  ASSERT_TRUE(network.run(images, out, label).ok());
  const auto refused = [&](ConstTensorView a, TensorView b, TensorView c, std::string_view part) {
    const std::string message = network.run(a, b, c).message();
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  TensorView wrong = out;
  wrong.device = {DeviceKind::cuda, 0};
  refused(images, wrong, label, "logits: they are on cuda, expected the host");
  wrong = out;
  wrong.data = logits.data();
  wrong.data = static_cast<char*>(wrong.data) + 1;
  refused(images, wrong, label, "logits: its address");
  wrong = label;
  wrong.device.index = 1;
  refused(images, out, wrong, "labels: they are on cpu:1");
  wrong = label;
  wrong.data = static_cast<char*>(wrong.data) + 2;
  refused(images, out, wrong, "labels: its address");
  wrong = out;
  wrong.data = memory.data();
  refused(images, wrong, label, "logits and images overlap");
  wrong = label;
  wrong.data = logits.data() + 1;
  refused(images, out, wrong, "labels and logits overlap");
  wrong = images;
  wrong.rank = 9;
  refused(wrong, out, label, "images: a view of rank 9");
  for (const Index n : {Index{-1}, most_index}) {
    wrong = images;
    wrong.shape[0] = n;
    refused(wrong, {}, {}, "images:");
  }
  wrong = images;
  wrong.data = nullptr;
  refused(wrong, out, label, "images: no tensor");
  // None at all: nothing is read or written.
  EXPECT_TRUE(network
                  .run(TensorView(nullptr, DType::u8, {0, side, side}),
                       TensorView(nullptr, DType::f32, {0, classes}),
                       TensorView(nullptr, DType::i32, {0}))
                  .ok());
  EXPECT_TRUE(network.run(TensorView(nullptr, DType::u8, {0, side, side}), {}, {}).ok());
}

TEST_F(Misused, NetworkChecksWhereItsOperandsLie) {
  NetworkOptions options;
  options.threads = 2;
  check_operands(Network(path_, options), 2, 3);
  check_operands(Network(source_path("models/fashion-scnn"), options), 28, 10);
}

}  // namespace
}  // namespace convoy
