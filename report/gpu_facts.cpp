#include "report/gpu_facts.hpp"

#include "core/gpu.hpp"
#if defined(CONVOY_CUDA)
#include "bench/fit/h200.hpp"
#endif

namespace convoy::report {

std::optional<Machine> h200_facts() {
#if defined(CONVOY_CUDA)
  return cuda::machine_of(cuda::h200());
#else
  return std::nullopt;
#endif
}

std::optional<GpuFacts> gpu_facts() {
  const std::optional<Machine> stored = h200_facts();
  if (!stored) return std::nullopt;
  const gpu::Survey survey = gpu::survey();
  if (!survey.machines.empty()) return GpuFacts{survey.machines.front(), false};
  return GpuFacts{*stored, true};
}

}  // namespace convoy::report
