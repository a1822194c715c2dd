// Activations as GPU kernels have them, for tests that nvcc does not compile.
#pragma once

#include <vector>

#include "convoy/stage.hpp"

namespace convoy {

/// cuda::activate of each value. Throws Error for neurons. On the default stream of a GPU.
std::vector<float> activated_on_gpu(const Activation& act, const std::vector<float>& values);
/// Only what the host does of it.
void make_device_activation(const Activation& act);

}  // namespace convoy
