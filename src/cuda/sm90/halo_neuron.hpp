// The halo family with a spiking neuron between convolution and pool.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "convoy/stage.hpp"
#include "cuda/sm90/halo_layout.hpp"
#include "cuda/sm90/nhwc_run.hpp"

namespace convoy::cuda::sm90 {

/// x [T,n,H,W,C], or [n,H,W,C] where it is held, and y [T,n,P',Q',K], all steps one behind the
/// other; membranes fp32 [n,P,Q,K] or null.
struct NeuronRun : NhwcRun {
  const float* membrane_in = nullptr;
  float* membrane_out = nullptr;

  explicit NeuronRun(const RunArgs& args)
      : NhwcRun(args), membrane_in(args.membrane_in), membrane_out(args.membrane_out) {}
};

/// As HaloLaunch.
class HaloNeuronLaunch {
 public:
  using Run = NeuronRun;

  HaloNeuronLaunch(const Stage& stage, const HaloTile& tile, const HaloLayout& layout);
  ~HaloNeuronLaunch();
  void use(const void* w);
  std::string run(const Run& run, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<Ready> ready_;
};

/// Registers, spilled bytes and shared memory of the kernel behind a tile.
cudaFuncAttributes halo_neuron_attributes(const Stage& stage, const HaloTile& tile);

}  // namespace convoy::cuda::sm90
