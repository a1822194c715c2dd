// Golden stages: the oracle, and the kernel that the planner chooses, against what PyTorch and
// SpikingJelly computed. make_golden.py makes the files and says what is in them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/npy.hpp"
#include "math/half.hpp"
#include "verify/compare.hpp"
#include "verify/parity.hpp"
#include "verify/source_path.hpp"

namespace convoy::verify {
namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(source_path("tests/golden/stages"));

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Golden {
  explicit Golden(const std::string& name) : path(folder / name) {
    std::string text;
    std::getline(std::ifstream(path / "stage.txt"), text);
    Stage& stage = inputs.stage = parse_stage(text);
    inputs.x = typed(read("x"), stage.dtype);
    inputs.weights = read("w");
    if (stage.bias) inputs.bias = read("bias");
    if (stage.norm) inputs.norm_scale = read("norm_scale"), inputs.norm_shift = read("norm_shift");
    if (has("v_in")) inputs.membrane_in = read("v_in");
  }
  bool has(const char* file) const { return fs::exists(path / (std::string(file) + ".npy")); }
  Tensor read(const char* file) const {
    return io::read_npy((path / (std::string(file) + ".npy")).string());
  }

  // The files hold fp32 that is exact in the stage's type.
  static Tensor typed(Tensor tensor, DType dtype) {
    if (tensor.view().dtype == dtype) return tensor;
    const ConstTensorView view = tensor.view();
    Tensor out(dtype, std::vector<Index>(view.shape.begin(), view.shape.begin() + view.rank));
    for (Index i = 0; i < tensor.elements(); ++i)
      math::store(dtype, out.view().data, i, tensor.data<float>()[i]);
    return out;
  }

  std::vector<double> values(const char* file) const {
    const Tensor tensor = read(file);
    std::vector<double> all;
    for (Index i = 0; i < tensor.elements(); ++i)
      all.push_back(math::load(tensor.view().dtype, tensor.view().data, i));
    return all;
  }

  // Spikes and positions are equal; numbers lie within `step` of the largest, and where the output
  // type is a small one a number between two of its neighbours may be rounded to the other.
  void expect(const char* file, const std::vector<float>& got, bool exact, double step) const {
    if (!has(file)) return;
    const TensorView shape = read(file).view();
    const std::vector<Index> axes(shape.shape.begin(), shape.shape.begin() + shape.rank);
    const std::vector<double> want = values(file);
    ASSERT_EQ(got.size(), want.size()) << file;
    const DType out = inputs.stage.output_dtype();
    if (out == DType::f16) step += 0x1p-10;
    if (out == DType::bf16) step += 0x1p-7;
    EXPECT_EQ(compare_close(file, got, want, exact ? 0 : step * largest(want), axes), "");
  }
  void expect_all(const std::vector<float>& y, const std::vector<float>& pre,
                  const std::vector<float>& act, const std::vector<float>& membrane,
                  const std::vector<std::int32_t>& idx, double step) const {
    const bool spikes = inputs.stage.act.is_neuron();
    expect("y", y, spikes, step);
    expect("pre", pre, false, step);
    expect("act", act, spikes, step);
    expect("v_out", membrane, false, step);
    expect("idx", std::vector<float>(idx.begin(), idx.end()), true, step);
  }

  fs::path path;
  Inputs inputs;
};

class GoldenStage : public testing::TestWithParam<std::string> {};

TEST_P(GoldenStage, Oracle) {
  const Golden golden(GetParam());
  const reference::Oracle oracle(golden.inputs.stage, golden.inputs.weights,
                                 golden.inputs.operands(), reference::Sum::exact);
  Threads threads(1);
  const reference::Outputs out = oracle.all(threads);
  const auto narrow = [](const std::vector<double>& wide) {
    return std::vector<float>(wide.begin(), wide.end());
  };
  golden.expect_all(narrow(out.y), narrow(out.pre), narrow(out.act), narrow(out.membrane), out.idx,
                    1e-6);
}

// Each kernel that fits, with each of its tiles.
TEST_P(GoldenStage, Kernels) {
  const Golden golden(GetParam());
  const Stage& stage = golden.inputs.stage;
  const Machine machine = cpu_machine(2);
  for (const Kernel* kernel : fitting_kernels(stage, machine)) {
    for (const Tile& tile : kernel->tiles(stage, machine)) {
      PlanOptions options;
      options.threads = 2;
      options.all_threads = true;
      options.use_tuning = false;
      options.kernel = kernel->name();
      options.tile = tile.name;
      const Plan plan(stage, golden.inputs.weights, options);
      SCOPED_TRACE(to_text(stage) + " by " + plan.kernel() + " " + tile.name);
      const Result result = run_guarded(plan, golden.inputs, Views::dense);
      ASSERT_EQ(result.error, "");
      golden.expect_all(result.y, result.pre, result.act, result.membrane, result.idx,
                        kernel->exact() ? 2e-6 : 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenStage, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace convoy::verify
