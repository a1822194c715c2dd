// Neurons over f32 sums in memory: charge, spike, reset in each step, and max 2x2 on the way.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/kernel.hpp"

namespace convoy::cuda {

/// Neighbouring channels that a thread takes, of K.
constexpr Index fire_channels(Index k) {
  return k % 4 == 0 ? 4 : 1;
}

/// `sums` is dense [T,n,P,Q,K], or [n,P,Q,K] where the input is held, with the bias. Outputs may be
/// null: y [T,n,P',Q',K] with its strides, its pool none or max 2x2 of stride 2; pre and act dense
/// [T,n,P,Q,K], all of the stage's output type; membranes dense [n,P,Q,K].
/// y, with its pixels, pre and act lie on fire_channels(K) elements.
struct FireRun {
  Index n = 0;
  const float* sums = nullptr;
  void* y = nullptr;
  Strides y_stride;
  void* pre = nullptr;
  void* act = nullptr;
  const float* membrane_in = nullptr;
  float* membrane_out = nullptr;
};

/// Loads a stage's kernels on the current device. To be called once before fire_launch; returns an
/// empty string, or what went wrong.
std::string fire_ready(const Stage& stage);

/// Enqueues one launch. No allocation, no synchronisation, capturable. Returns an empty string, or
/// what went wrong. `overlap_previous`: as of Launch.
std::string fire_launch(const Stage& stage, const FireRun& pass, bool overlap_previous,
                        cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
