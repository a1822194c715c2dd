// Activations on the GPU are those of math/activation.hpp.
#include "activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu_case.hpp"
#include "math/activation.hpp"

namespace convoy {
namespace {

TEST(DeviceActivation, RefusesNeurons) {
  for (const Activation& act : {no_act, relu, relu6, clip_to(-1, 2), leaky(0.1F), leaky(0)})
    EXPECT_NO_THROW(make_device_activation(act));
  EXPECT_THROW(make_device_activation(integrate_fire()), Error);
  EXPECT_THROW(make_device_activation(lif(2, 1)), Error);
}

class GpuActivation : public GpuTest {};

// But for zeros, whose sign the GPU settles when it adds the bias (positive_zero), and leaky(0) of
// -inf, which is NaN.
TEST_F(GpuActivation, HasTheValuesOfTheHost) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{NAN,     infinity, -infinity, 0, 1e-45F, -1e-45F,
                            3.4e38F, -3.4e38F, 6,         2, -1};
  for (int i = -400; i < 400; ++i) values.push_back(static_cast<float>(i) / 37);
  for (const Activation& act : {no_act, relu, relu6, clip_to(-1, 2), clip_to(1, infinity),
                                leaky(0.1F), leaky(1), leaky(2)}) {
    const std::vector<float> got = activated_on_gpu(act, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = math::activate(act, values[i]);
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(got[i])) << values[i];
      else
        EXPECT_EQ(got[i], expected) << values[i];
    }
  }
}

}  // namespace
}  // namespace convoy
