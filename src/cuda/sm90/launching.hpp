// What the launches of this folder's families have in common.
#pragma once

#include <string>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/tensor_map.hpp"

namespace convoy::cuda::sm90 {

/// Points a map at `data`. `as_made`: it has the shape that it was made with; else `arguments` are
/// those of the shape that it has now. Returns an empty string, or what went wrong.
template <class Arguments>
std::string aim(CUtensorMap* map, const void* data, bool as_made, Arguments arguments) noexcept {
  return as_made ? redirect(map, data) : encode(arguments(), data, map);
}

/// Enqueues a launch. It starts while the stream's previous kernel drains; the kernel waits for
/// that one itself. Returns an empty string, or what went wrong; `what` names the launch.
template <class Params, class What>
std::string launch(const LoadedKernel<Params>& kernel, const Params& params, int grid, int threads,
                   int shared_bytes, cudaStream_t stream, What what) noexcept {
  const cudaError_t error = kernel.launch({.grid = grid,
                                           .threads = threads,
                                           .shared_bytes = shared_bytes,
                                           .stream = stream,
                                           .overlap_previous = true},
                                          params);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching " + what());
}

}  // namespace convoy::cuda::sm90
