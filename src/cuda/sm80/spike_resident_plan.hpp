// Kernel `spike_resident`: which chains it takes, and how their layers lie in shared memory. Plain
// arithmetic; needs no GPU.
//
// A CTA takes its images in rounds. In a round, teams of warps take an image each through the
// convolutions: all T spike maps of a layer, then the next layer. What the last one fires, the
// features of all images of the round, is what the linear layers read after it, an image a row.
#pragma once

#include <string>
#include <vector>

#include "core/serves.hpp"
#include "cuda/device.hpp"
#include "cuda/sm80/spike_resident_index.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda::sm80 {

inline constexpr int resident_warps = 16;
inline constexpr int most_layers = 12;
/// Spike counts are f16 numbers.
inline constexpr Index most_counted_steps = 2048;

/// One layer as the kernel sees it, whatever the teams. Offsets and distances in bytes, of shared
/// memory unless it says otherwise.
struct ResidentLayer {
  // The products.
  int k = 0, channel_tiles = 0;  // filters; the same in eights
  int phases = 1;                // of the first layer: columns of y that one row of products makes
  int taps_h = 1, taps_w = 1;    // of its window; of the first layer a row is one tap
  int tap_units = 0, tap_row = 0, tap_column = 0;  // of a tap; from one tap to the next
  int products = 0;                                // along the depth
  int weights = 0;  // hi and lo; of a linear layer from the first one's on
  int offsets = 0;  // int [2 * products]: where a unit lies, from a row's address
  int bias = 0;     // float [8 * channel_tiles]
  // Its input: where it begins in the team's memory, or its part of the CTA's; from step to step,
  // from one row of y, or image, to the next, and from one column, or group of phases, to the next.
  int in = 0, in_step = 0, in_row = 0, in_column = 0;
  // Its output, after the pool.
  bool pool = false;
  int items = 0, across = 0;  // of spike_resident_index.hpp
  int out_h = 1, out_w = 1;
  int out = 0, out_step = 0, out_row = 0, out_column = 0;
  bool out_features = false;  // out lies in a part of the CTA's, out_image from image to image
  int out_image = 0;
  bool stores = true;   // false: nothing in shared memory
  bool counts = false;  // stores the number of spikes, not those of each step
  bool held = false;    // a linear layer whose input is the same in all steps: the first
  // The neuron; of a mean unused.
  bool mean = false, leaky = false, soft = false;
  float tau = 0, threshold = 0;
  float rate = 0;  // 1/tau of a leaky one

  /// Of products whose two units are neighbours in a column, those that one column makes.
  CONVOY_HD constexpr int pairs() const { return taps_h / 2; }
  CONVOY_HD constexpr int paired_products() const { return pairs() * taps_w * tap_units; }
  /// Whether the last product has a single unit.
  CONVOY_HD constexpr bool odd() const { return taps_h * taps_w * tap_units % 2 != 0; }
  /// From a row's address to a unit of it. The unit that makes them even has weights of 0 only, and
  /// any finite input.
  CONVOY_HD constexpr int offset(int unit) const {
    const UnitPlace at =
        unit_place(unit < taps_h * taps_w * tap_units ? unit : 0, taps_h, taps_w, tap_units);
    return at.row * tap_row + at.column * tap_column + at.unit * resident_unit_bytes;
  }
  bool operator==(const ResidentLayer&) const = default;
};

/// How u8 images become units of f16 values: unit u of group j of row y holds values 8u to 8u + 7,
/// of pixels in a row, channels together, from column j * step of the padded image on. Before a
/// linear layer an image is one pixel, its units the features.
struct ResidentImage {
  int h = 0, w = 0, c = 0;
  int top = 0, left = 0;  // padding
  /// Pixels have a channel more, white inside the image: what makes 0 of x' outside of it.
  bool ones = false;
  int rows = 0, groups = 0, units = 0, step = 0;
  int pitch = 0;  // units from row to row
  CONVOY_HD constexpr int channels() const { return c + (ones ? 1 : 0); }
  bool operator==(const ResidentImage&) const = default;
};

/// A network as the kernel sees it, whatever the teams.
struct ResidentNet {
  int steps = 1;
  int convolutions = 0, size = 0;  // layers
  ResidentLayer layers[most_layers];
  ResidentImage image;
  int constants_bytes = 0;  // tables, biases and weights of convolutions, from 0 on
  int linear_bytes = 0;     // weights of linear layers
  bool clear = false;       // padding lies around spike maps: 0 before a round
  bool operator==(const ResidentNet&) const = default;
};

struct ResidentLayout : ResidentNet {
  TaskSizes tasks;
  int compiled = 0;         // of compiled_nets, from 1 on; 0: none of them
  bool warpgroups = false;  // the code for it by wgmma, on 9.0 (spike_resident_warpgroup.hpp)
  int team = 0;             // warps that share an image; 0: it does not fit
  int batch = 0;            // images in a round
  int team_bytes = 0;
  /// Where features lie, which linear layers read: layers take turns. At the second part the teams'
  /// memory lies, which is not in use then.
  int parts[2] = {};
  int linear_at = 0;  // weights of linear layers; 0: they stay in global memory
  int shared_bytes = 0;

  CONVOY_HD int teams() const { return resident_warps / team; }
  CONVOY_HD int team_at() const { return parts[1]; }
  /// The part that layer `i` reads; of what is behind the last one, the logits, float [batch][k].
  CONVOY_HD int part(int i) const { return parts[(i - convolutions) % 2]; }
};

/// What some stage of the chain may have. A stage's place in the chain refuses more.
inline constexpr Serves served_by_resident{
    .types = {{DType::f32, DType::u8}, DType::f32},
    .layouts = {Layout::nhwc, Layout::nchw},
    .strides = true,
    .dilation = true,
    .groups = false,
    .bias = true,
    .norm = false,
    .acts = neurons | Activation::Kind::none,
    .soft = true,
    .hold = true,
    .pools = none_or_whole_max2,
    .pools_first = false,
    .keep = nothing,
};
/// Adds each reason why the chain can't run on the device, beyond what the family does not serve.
void refuse_resident(const Chain& chain, const DeviceFacts& device, Reasons& why);

/// What fits: teams of 1, 2, 4, 8 and 16 warps with many_tasks, then those with few_tasks, then
/// warpgroups with few_tasks and with many_tasks. Of a chain without other refusals.
std::vector<ResidentLayout> resident_layouts(const Chain& chain, const DeviceFacts& device);

/// The layout that serves n images best; of warpgroups wherever there are any: they add products in
/// an order of their own, and an image's bits must not depend on how many come with it.
const ResidentLayout& best_layout(const std::vector<ResidentLayout>& layouts, Index n,
                                  const DeviceFacts& device);

/// Predicted seconds of a run of n images.
double resident_seconds(const ResidentLayout& layout, Index n, const DeviceFacts& device);

/// Whether stage i multiplies whole images: 1x1 on one pixel, and as the first one without pool and
/// padding.
bool is_linear_stage(const Chain& chain, std::size_t i);

}  // namespace convoy::cuda::sm80
