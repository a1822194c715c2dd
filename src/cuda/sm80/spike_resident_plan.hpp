// Kernel `spike_resident`: which chains it takes, and how their layers lie in shared memory. Plain
// arithmetic; needs no GPU.
//
// A CTA takes its images in rounds. In a round, teams of warps take an image each through the
// convolutions: all T spike maps of a layer, then the next layer. What the last one fires, the
// features of all images of the round, is what the linear layers read after it, an image a row.
#pragma once

#include <string>
#include <vector>

#include "core/chain.hpp"
#include "cuda/device.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda::sm80 {

inline constexpr int resident_warps = 16;
inline constexpr int most_layers = 12;
/// Spike counts are f16 numbers.
inline constexpr Index most_counted_steps = 2048;

/// One layer as the kernel sees it. Offsets and distances in bytes, of shared memory unless it says
/// otherwise.
struct ResidentLayer {
  // The products.
  int k = 0, channel_tiles = 0;  // filters; the same in eights
  int phases = 1;                // of the first layer: columns of y that one row of products makes
  int products = 0;              // along the depth
  int weights = 0;               // hi and lo; of a linear layer an offset in global memory
  int offsets = 0;               // int [2 * products]: where a unit lies, from a row's address
  int bias = 0;                  // float [8 * channel_tiles]
  // Its input: where it begins (of a convolution in the team's memory), from step to step, from
  // one row of y, or image, to the next, and from one column, or group of phases, to the next.
  int in = 0, in_step = 0, in_row = 0, in_column = 0;
  // Its output, after the pool.
  bool pool = false;
  int items = 0, across = 0;  // of spike_resident_index.hpp
  int out_h = 1, out_w = 1;
  int out = 0, out_step = 0, out_row = 0, out_column = 0;
  bool out_features = false;  // out lies in the CTA's memory, out_image from image to image
  int out_image = 0;
  bool stores = true;   // false: nothing in shared memory
  bool counts = false;  // stores the number of spikes, not those of each step
  // The neuron; of a mean unused.
  bool mean = false, leaky = false, soft = false;
  float tau = 0, threshold = 0;
};

/// How u8 images become units of f16 values: unit u of group j of row y holds values 8u to 8u + 7,
/// of pixels in a row, channels together, from column j * step of the padded image on.
struct ResidentImage {
  int h = 0, w = 0, c = 0;
  int top = 0, left = 0;  // padding
  /// Pixels have a channel more, 1 inside the image: what makes 0 of x' outside of it.
  bool ones = false;
  int rows = 0, groups = 0, units = 0, step = 0;
  CONVOY_HD int channels() const { return c + (ones ? 1 : 0); }
};

struct ResidentLayout {
  int team = 0;   // warps that share an image; 0: it does not fit
  int batch = 0;  // images in a round
  int steps = 1;
  int convolutions = 0, size = 0;  // layers
  ResidentLayer layers[most_layers];
  ResidentImage image;
  int constants_bytes = 0;  // tables, biases and weights of convolutions, from 0 on
  int linear_bytes = 0;     // global memory: weights of linear layers
  int team_at = 0, team_bytes = 0;
  bool clear = false;  // padding lies around spike maps: 0 before a round
  int logits = 0;      // float [batch][k] of a mean
  int shared_bytes = 0;

  CONVOY_HD int teams() const { return resident_warps / team; }
};

/// Every reason why the chain can't run on the device; empty: it can.
std::vector<std::string> resident_refusals(const Chain& chain, const DeviceFacts& device);

/// Team sizes that fit, smallest first: 1, 2, 4, 8, 16. Of a chain without other refusals.
std::vector<ResidentLayout> resident_layouts(const Chain& chain, const DeviceFacts& device);

/// The layout that serves n images best.
const ResidentLayout& best_layout(const std::vector<ResidentLayout>& layouts, Index n,
                                  const DeviceFacts& device);

/// Predicted seconds of a run of n images.
double resident_seconds(const ResidentLayout& layout, Index n, const DeviceFacts& device);

/// Whether stage i multiplies whole images: 1x1 on one pixel, not the first.
bool is_linear_stage(const Chain& chain, std::size_t i);

}  // namespace convoy::cuda::sm80
