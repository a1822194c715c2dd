// A stage with operands on the host and on a GPU, for tests that compare plans on the two.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "convoy/plan.hpp"
#include "core/gpu.hpp"

namespace convoy {

/// The base of every test suite that needs a GPU; suites so derived are named Gpu*, for ctest's
/// label.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const gpu::Survey survey = gpu::survey();
    if (survey.machines.empty()) GTEST_SKIP() << "skipped: no GPU (" << survey.why_none << ")";
  }
};

inline constexpr Device gpu0{DeviceKind::cuda, 0};

/// Plan options for a device that leave tuning out.
PlanOptions options_for(Device device, std::string_view kernel = {}, std::string_view tile = {});

enum class Values : std::uint8_t {
  integers,  // small: every partial sum is exact, so that all kernels agree bit for bit
  normal,
};

/// What a run reads and writes, on one device. The output type is written out in the stage.
struct GpuCase {
  Stage stage;
  Device device;
  Tensor x, w, bias, norm_scale, norm_shift, membrane_in;  // w on the host
  Tensor y, pre, act, idx, membrane_out;

  /// Outputs are poisoned: what a run does not write differs from what another one wrote.
  GpuCase(const Stage& stage, Values values, Device device);
  Operands operands();
  /// All bits of the outputs set: NaN, and an index that no plane has. Before a second run.
  void poison();
  /// Every output's bytes, copied to the host; -0 reads +0.
  std::vector<unsigned char> outputs() const;
};

/// Runs a stage on integers by a kernel and by `general`: all outputs have the same bits.
void expect_bits_of_general(const char* stage, std::string_view kernel);
/// Runs a stage of five images or more, then its images 3 and 4 alone by the same plan: y has the
/// same bits.
void expect_same_bits_of_fewer_images(const char* stage, std::string_view kernel);

/// Bytes of GPU 0 that are in use after `work` and were not before. Other processes come and go:
/// nothing where one of a hundred times, 20 ms apart, shows nothing.
long long memory_kept_by(const std::function<void()>& work);

/// The images of one tensor: [first, first + n) of an NHWC or NCHW view without time steps.
template <class View>
View images(View view, Index first, Index n) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, char, const char>;
  view.data = static_cast<Byte*>(view.data) +
              static_cast<std::size_t>(first * view.stride[0]) * size_of(view.dtype);
  view.shape[0] = n;
  return view;
}

}  // namespace convoy
