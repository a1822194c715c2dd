#include "cuda/known_gpus.hpp"

#include <array>

namespace convoy::cuda {
namespace {

/// Memory: two transfers a clock of a bus of so many bits.
constexpr double bandwidth(double clock, int bits) {
  return 2 * clock * bits / 8;
}

struct Known {
  const char *short_name, *name;
  int major, minor, sms;
  std::size_t shared_bytes, l2_mib;
  double clock, memory_bandwidth;
};
// The H200 as it answered; the others by NVIDIA's data sheets, shared memory by the CUDA
// programming guide's table of compute capabilities.
constexpr std::array<Known, 5> known{{
    {"h200", "NVIDIA H200", 9, 0, 132, 232448, 60, 1.98e9, bandwidth(3.201e9, 6016)},
    {"h100", "NVIDIA H100 SXM", 9, 0, 132, 232448, 50, 1.98e9, 3.35e12},
    {"a100", "NVIDIA A100 SXM", 8, 0, 108, 166912, 40, 1.41e9, 2.039e12},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 101376, 6, 1.695e9, 0.936e12},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 101376, 72, 2.52e9, 1.008e12},
}};

DeviceFacts facts_of(const Known& gpu) {
  DeviceFacts facts;
  facts.name = gpu.name;
  facts.major = gpu.major, facts.minor = gpu.minor;
  facts.sms = gpu.sms;
  facts.shared_bytes = gpu.shared_bytes;
  facts.l2_bytes = gpu.l2_mib << 20;
  facts.clock = gpu.clock;
  facts.memory_bandwidth = gpu.memory_bandwidth;
  return facts;
}

}  // namespace

DeviceFacts h200() {
  return facts_of(known.front());
}

std::optional<DeviceFacts> known_gpu(std::string_view name) {
  for (const Known& gpu : known)
    if (name == gpu.short_name) return facts_of(gpu);
  return std::nullopt;
}

std::string known_gpu_names() {
  std::string names;
  for (const Known& gpu : known) names += (names.empty() ? "" : ", ") + std::string(gpu.short_name);
  return names;
}

}  // namespace convoy::cuda
