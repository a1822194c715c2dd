// The depthwise family: as many groups and filters as channels. Host side: what fits, tiles, the
// geometry, the launch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kernel.hpp"

namespace convoy::cuda {

constexpr int depthwise_threads = 128;  // of a CTA, at most
constexpr int depthwise_bytes = 8;      // of neighbouring channels that a thread takes at most

/// Output pixels of a thread, before the pool.
struct DepthwiseTile {
  int rows = 0, columns = 0;
};

/// How threads lie over the convolution's output: in a CTA `lanes` vectors of channels by `across`
/// by `down` tiles.
struct DepthwiseLayout {
  int rows = 0, columns = 0;  // of the convolution that y is made of
  int lanes = 0, across = 0, down = 0;
  int channel_blocks = 0, column_blocks = 0, row_blocks = 0;  // CTAs of an image
};

/// Neighbouring channels of a thread: `depthwise_bytes` of them where C is a multiple of that, else
/// one.
int depthwise_channels(const Stage& stage);
/// Whether the filter's size and strides are compiled in; else a loop over taps runs it.
bool is_compiled_in(const Stage& stage);

/// Every reason why the family can't run a legal stage; empty: it can.
std::vector<std::string> depthwise_refusals(const Stage& stage);
std::vector<DepthwiseTile> depthwise_tiles(const Stage& stage);
DepthwiseLayout depthwise_layout(const Stage& stage, const DepthwiseTile& tile);
/// Predicted seconds of a run.
double depthwise_seconds(const Stage& stage, const DepthwiseTile& tile, const Machine& machine);

/// Enqueues launches of one stage on one device, which is current whenever a member is called.
class DepthwiseLaunch {
 public:
  /// Loads the kernel. `overlap_previous`: from compute capability 9.0 on. Throws Error.
  DepthwiseLaunch(const Stage& stage, const DepthwiseTile& tile, bool overlap_previous);
  ~DepthwiseLaunch();
  DepthwiseLaunch(const DepthwiseLaunch&) = delete;
  DepthwiseLaunch& operator=(const DepthwiseLaunch&) = delete;

  /// Device pointers: operands as RunArgs has them, x and y on a thread's channels, pixels too; w
  /// [R,S,C] in the stage's type. Returns an empty string, or what went wrong. Summation: r, s in
  /// sequence from +0, fused multiply-add in fp32.
  std::string run(const RunArgs& args, const void* w, cudaStream_t stream) const noexcept;

 private:
  struct Ready;
  std::unique_ptr<const Ready> ready_;
};

}  // namespace convoy::cuda
