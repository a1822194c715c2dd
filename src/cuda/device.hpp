// What GPUs are here.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>
#include <vector>

#include "cuda/device_facts.hpp"

namespace convoy::cuda {

/// GPUs that CUDA can see, and why there are none (no driver, driver too old, ...) where there are
/// none. Needs no driver: a machine without one gets an empty list and the reason.
struct Discovery {
  std::vector<DeviceFacts> devices;
  std::string why_none;  // and what to do
};
Discovery discover();

/// Why CUDA's answer to how many devices there are means that none is usable, and what to do;
/// empty: there are some. `driver` as driver_version() says.
std::string why_no_device(cudaError_t error, int count, const std::string& driver);

/// What a build has code for, from CMake's list: "75-real 90-virtual" is "machine code for compute
/// capability 7.5; PTX for 9.0 and later".
std::string architectures_text(std::string_view list);

/// The CUDA version that the driver serves, "13.0"; empty: there is no driver.
std::string driver_version();

/// Facts of one device; throws Error that says what is there.
DeviceFacts facts_of(int index);

}  // namespace convoy::cuda
