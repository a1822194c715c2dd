// The code of each kind of error, as a caller meets it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convoy/network.hpp"
#include "convoy/pinned.hpp"
#include "convoy/plan.hpp"
#include "convoy/tune.hpp"
#include "core/failure.hpp"
#include "ready_plan.hpp"

namespace convoy {
namespace {

/// The code of what the call throws; ok: it throws nothing.
template <class Call>
StatusCode code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
    return error.code();
  }
  return StatusCode::ok;
}

TEST(ErrorCode, HasAName) {
  EXPECT_EQ(to_text(StatusCode::invalid_operand), "invalid_operand");
  EXPECT_EQ(to_text(static_cast<StatusCode>(200)), "?");
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::internal_error); ++code)
    names.insert(to_text(static_cast<StatusCode>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(StatusCode::internal_error) + 1);
  EXPECT_FALSE(names.contains("?"));
}

TEST(ErrorCode, IsThatOfTheStatus) {
  for (int i = 1; i <= static_cast<int>(StatusCode::internal_error); ++i) {
    const auto code = static_cast<StatusCode>(i);
    EXPECT_EQ(code_of([&] { Status(code, "a message").or_throw(); }), code) << to_text(code);
    const Status status = [&]() -> Status {
      try {
        throw Error("a message", code);
      } catch (...) {
        return current_failure();
      }
    }();
    EXPECT_EQ(status.code(), code) << to_text(code);
  }
}

TEST(ErrorCode, OfAnArgument) {
  const Stage stage = parse_stage("n1h4c2k2r3");
  const auto code_with = [&](PlanOptions options) {
    return code_of([&] { Plan(stage, options); });
  };
  for (const StatusCode code :
       {code_of([] { parse_stage("n1h8c8k8r9"); }), code_of([] { parse_stage("nonsense"); }),
        code_of([] { Plan(Stage{.n = 1, .h = 8, .c = 8, .k = 8, .r = 9, .s = 9}); }),
        code_of([] { parse_device("gpu"); }), code_of([] { parse_network("nonsense", "mine"); }),
        code_with({.threads = -1}), code_with({.kernel = "nowhere"}),
        code_with({.tile = "nowhere"}), code_with({.concurrent_runs = 0}),
        code_of([&] { tune(stage, {.threads = 1}, 0, false); })})
    EXPECT_EQ(code, StatusCode::invalid_argument);
}

TEST(ErrorCode, OfATensor) {
  ReadyPlan setup("n1h4c2k2r3");
  Tensor other(DType::f32, {3, 3, 3, 3});
  const NetworkText text = parse_network("input f32:h2c1\nflatten\nfc k2\n", "mine");
  const std::vector<float> wrong(8, std::numeric_limits<float>::infinity());
  for (const StatusCode code :
       {code_of([] {
          TensorView(nullptr, DType::f32, {1, 1, 1, 1, 1, 1});
        }),
        code_of([] { TensorView(nullptr, DType::f32, {-1}); }),
        code_of([] { Tensor(DType::f32, {-1}); }),
        code_of([&] { static_cast<void>(other.view().channels(3, 1)); }),
        code_of([&] { copy_tensor(other, setup.w); }),
        code_of([&] { setup.plan.set_weights(other); }),
        code_of([&] { Plan(setup.stage, other, plain()); }),
        code_of([&] { fold_batchnorm(other, other, other, other, other, other); }),
        code_of([&] { Network(text, {}); }), code_of([&] {
          Network(text, {{"fc.weight", other}});
        }),
        code_of([&] {
          Network(text, {{"fc.weight", ConstTensorView::of(wrong.data(), {2, 4})}});
        })})
    EXPECT_EQ(code, StatusCode::invalid_operand);
}

TEST(ErrorCode, OfWhatNoKernelTakes) {
  PlanOptions options = plain();
  options.kernel = "winograd2";
  EXPECT_EQ(code_of([&] { Plan(parse_stage("n1h8c8k8r1"), options); }), StatusCode::unsupported);
  ReadyPlan on_cpu("n1h4c2k2r3");
  EXPECT_EQ(code_of([&] { on_cpu.plan.repack(on_cpu.w); }), StatusCode::unsupported);
}

TEST(ErrorCode, OfADeviceThatIsNotHere) {
  const Device none{DeviceKind::cuda, 99};
  PlanOptions options;
  options.device = none;
  for (const StatusCode code : {code_of([&] { Plan(parse_stage("n1h4c2k2r3"), options); }),
                                code_of([&] { Tensor(DType::f32, {4}, none); }),
                                code_of([&] { PinnedTensor(DType::f32, {4}, none); }), code_of([&] {
                                  static_cast<void>(Tensor(DType::f32, {4}).to(none));
                                })})
    EXPECT_EQ(code, StatusCode::no_device);
}

TEST(ErrorCode, OfAnObjectsState) {
  ReadyPlan setup("n1h4c2k2r3");
  const Plan there = std::move(setup.plan);
  EXPECT_EQ(code_of([&] { static_cast<void>(setup.plan.stage()); }), StatusCode::moved_from);
  const Plan bare(setup.stage, plain());
  EXPECT_EQ(code_of([&] { bare.run(setup.operands()).or_throw(); }), StatusCode::no_weights);
}

TEST(ErrorCode, OfMemoryThatIsNotThere) {
  EXPECT_EQ(code_of([] { Tensor(DType::u8, {Index{1} << 58}); }), StatusCode::out_of_memory);
}

class FileErrors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("convoy-codes-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  StatusCode code_of_network() const {
    return code_of([&] { Network(folder_.string(), {.threads = 1}); });
  }
  std::filesystem::path folder_;
};

TEST_F(FileErrors, OfANetwork) {
  EXPECT_EQ(code_of_network(), StatusCode::file_not_found);
  std::filesystem::create_directory(folder_ / "network.txt");
  EXPECT_EQ(code_of_network(), StatusCode::file_error);
  std::filesystem::remove(folder_ / "network.txt");
  write("network.txt", "input f32:h2c1\nflatten\nfc k2\nnonsense\n");
  EXPECT_EQ(code_of_network(), StatusCode::invalid_file);
  write("network.txt", "input f32:h2c1\nflatten\nfc k2\n");
  EXPECT_EQ(code_of_network(), StatusCode::file_not_found);  // the weights
  for (const char* wrong : {"1 2 3", "1 2 3 4 5 6 7 nan", "1 2 3 4 5 6 7 eight"}) {
    write("fc.weight.txt", wrong);
    EXPECT_EQ(code_of_network(), StatusCode::invalid_file) << wrong;
  }
  write("fc.weight.txt", "1 2 3 4 5 6 7 8");
  EXPECT_EQ(code_of_network(), StatusCode::ok);
}

TEST_F(FileErrors, OfAListOfStages) {
  EXPECT_EQ(code_of([&] { read_shape_list(folder_ / "none"); }), StatusCode::file_not_found);
  const std::string list = write("list", "n1h4c2k2r3\nnonsense\n");
  EXPECT_EQ(code_of([&] { read_shape_list(list); }), StatusCode::invalid_file);
}

}  // namespace
}  // namespace convoy
