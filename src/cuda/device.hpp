// What GPUs are here, and the few facts about them that tiles depend on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convoy::cuda {

/// Facts read from a device, never assumed.
struct DeviceFacts {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sms = 0;
  std::size_t shared_bytes = 0;  // of one CTA, opted in
  std::size_t l2_bytes = 0;
  std::size_t memory_bytes = 0;
  bool operator==(const DeviceFacts&) const = default;
};

/// GPUs that CUDA can see, and why there are none (no driver, driver too old, ...) where there are
/// none. Needs no driver: a machine without one gets an empty list and the reason.
struct Discovery {
  std::vector<DeviceFacts> devices;
  std::string why_none;
};
Discovery discover();

/// Facts of one device; throws Error that says what is there.
DeviceFacts facts_of(int index);

}  // namespace convoy::cuda
