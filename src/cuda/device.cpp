#include "cuda/device.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <mutex>

#include "core/failure.hpp"
#include "cuda/error.hpp"

namespace convoy::cuda {
namespace {

std::string version_text(int version) {  // 13020 is 13.2
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

DeviceFacts read(int index) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, index),
          fmt::format("reading an attribute of cuda:{}", index));
    return value;
  };
  const auto bytes = [&](cudaDeviceAttr which) {
    return static_cast<std::size_t>(attribute(which));
  };
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), fmt::format("reading cuda:{}", index));
  DeviceFacts facts;
  facts.index = index;
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.sms = properties.multiProcessorCount;
  facts.shared_bytes = bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  facts.l2_bytes = bytes(cudaDevAttrL2CacheSize);
  facts.memory_bytes = properties.totalGlobalMem;
  facts.clock = 1e3 * attribute(cudaDevAttrClockRate);
  // Two transfers a clock.
  facts.memory_bandwidth =
      2e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  return facts;
}

Discovery read_all() {
  Discovery found;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  found.why_none = why_no_device(error, count, driver_version());
  if (error != cudaSuccess) return found;
  for (int i = 0; i < count; ++i) found.devices.push_back(read(i));
  return found;
}

}  // namespace

std::string why_no_device(cudaError_t error, int count, const std::string& driver) {
  if (driver.empty())
    return "no NVIDIA driver is installed, or this container can't see it. Install one; in a "
           "container, start it with its GPUs (--gpus all)";
  if (error == cudaErrorInsufficientDriver)
    return fmt::format(
        "the driver serves CUDA {}, and this build needs {}. Install a newer driver, or build "
        "with an older toolkit",
        driver, version_text(CUDART_VERSION));
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return "the driver sees no GPU. Check CUDA_VISIBLE_DEVICES and the output of nvidia-smi";
  if (error != cudaSuccess)
    return describe(error, "asking CUDA for devices") + ". Check the output of nvidia-smi";
  return {};
}

std::string architectures_text(std::string_view list) {
  std::string code, ptx;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    // "90a-real": the last digit is the minor version.
    const std::string_view number = one.substr(0, one.find('-'));
    const std::size_t minor = number.find_last_of("0123456789");
    std::string& into = one.ends_with("-virtual") ? ptx : code;
    into += fmt::format("{}{}.{}", into.empty() ? "" : ", ", number.substr(0, minor),
                        number.substr(minor));
  }
  std::string text = "machine code for compute capability " + code;
  if (!ptx.empty()) text += "; PTX for " + ptx + " and later";
  return text;
}

std::string driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return version > 0 ? version_text(version) : std::string();
}

Discovery discover() {
  // Facts do not change while a process lives, and reading them takes milliseconds. A failure is
  // not kept: what was in its way may be gone at the next call.
  static const Discovery* kept = nullptr;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (kept) return *kept;
  Discovery found = read_all();
  if (!found.devices.empty()) kept = new Discovery(found);  // lives as long as the process
  return found;
}

DeviceFacts facts_of(int index) {
  const Discovery found = discover();
  if (index >= 0 && index < static_cast<int>(found.devices.size()))
    return found.devices[static_cast<std::size_t>(index)];
  if (found.devices.empty())
    throw NoDevice(fmt::format("device cuda:{}: {}; or use cpu.", index, found.why_none));
  throw NoDevice(fmt::format(
      "device cuda:{}: there {} on this machine, numbered from 0. Use one of them.", index,
      found.devices.size() == 1 ? std::string("is 1 GPU")
                                : fmt::format("are {} GPUs", found.devices.size())));
}

}  // namespace convoy::cuda
