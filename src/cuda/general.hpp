// The general family: every legal stage on any GPU from compute capability 7.5, plain and right.
// The fallback where no fast family fits, and the GPU's own cross-check of those that do.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "core/kernel.hpp"

namespace convoy::cuda {

/// Every reason why the family can't run a legal stage: sizes beyond 2^30. Empty: it can.
std::vector<std::string> general_refusals(const Stage& stage);

/// Device pointers: operands as RunArgs has them (workspace and threads unused); weights fp32
/// [K,R,S,C/groups], already rounded to the type the stage computes with. Enqueues one or two
/// launches on `stream`; membranes may be updated in place. Returns an empty string, or what went
/// wrong. Summation: r, s, c in sequence, fused multiply-add in fp32.
std::string general_launch(const Stage& stage, const RunArgs& args, const float* w,
                           cudaStream_t stream) noexcept;

}  // namespace convoy::cuda
