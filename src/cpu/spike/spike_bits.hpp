// How spikes lie in memory: one bit each, eight channels a byte, so that a byte can index a table
// of partial sums. Shared by the kernels spike_first, spike_conv and spike_linear.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/serves.hpp"

namespace convoy::cpu {

/// One step of one image is [h + pads][w + pads][bytes]; channel c is bit c % 8 of byte c / 8, and
/// bits beyond the last channel are 0. The border is that of the *consuming* layer and stays 0, so
/// that no kernel tests for it. A block of images is [t][image][...].
struct SpikeLayout {
  Index h = 0, w = 0, c = 0;
  Padding pad{0};
  /// Step 1 holds only the spikes that step 0 lacks. Right where a spike in step 0 implies one in
  /// step 1; the consumer then adds to the sums of step 0 and reads far fewer different bytes.
  bool increments = false;

  Index bytes() const { return (c + 7) / 8; }
  Index row_bytes() const { return (w + pad.left + pad.right) * bytes(); }
  Index image_bytes() const { return (h + pad.top + pad.bottom) * row_bytes(); }
  /// Of pixel (0, 0), behind the border.
  Index origin() const { return pad.top * row_bytes() + pad.left * bytes(); }
  bool operator==(const SpikeLayout&) const = default;
};

/// Bytes behind the last step's last image that may be read, whatever they hold.
inline constexpr Index spike_slack = 7;

/// A block of images in some layout: step t of image i starts at data + t*step + i*image_bytes().
struct SpikeBlock {
  std::uint8_t* data = nullptr;
  Index step = 0;
};

/// Where a kernel writes the spikes of a block.
struct SpikeOutput {
  std::uint8_t* data = nullptr;                    // of pixel (0, 0), behind the border
  Index step = 0, image = 0, row = 0, column = 0;  // bytes from one to the next
};
inline SpikeOutput output_in(const SpikeLayout& layout, const SpikeBlock& block) {
  return {block.data + layout.origin(), block.step, layout.image_bytes(), layout.row_bytes(),
          layout.bytes()};
}

/// The neuron of a spiking layer.
struct Neuron {
  bool leaky = false;  // LIF with tau; else IF
  bool soft = false;   // reset by subtraction
  float threshold = 1, tau = 2;
};
inline Neuron neuron_of(const Stage& stage) {
  const bool leaky = stage.act.kind == Activation::Kind::lif;
  return {leaky, stage.soft, stage.act.threshold(), stage.act.tau()};
}

/// What some layer of spikes serves. Each kind of layer refuses further riders: where it stands in
/// the chain decides which.
inline constexpr Serves served_by_spikes{
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

/// A filter of 1x1 on an image of 1x1.
inline bool is_linear(const Stage& stage) {
  return stage.h == 1 && stage.w == 1 && stage.r == 1 && stage.s == 1;
}

/// [K, rounded up to 16]: the bias, or 0 without one; -inf beyond K, where nothing fires then.
Buffer<float> padded_bias(const float* bias, Index k);

/// Spikes as bits: `spikes` is [steps][n][h][w][c] f32, 0 or not, with `spikes_step` values from a
/// step to the next. The border is left alone.
void pack_spikes(const SpikeLayout& layout, Index steps, Index n, const float* spikes,
                 Index spikes_step, const SpikeBlock& to);
/// And back, as 0 and 1; increments are undone.
void unpack_spikes(const SpikeLayout& layout, Index steps, Index n, const SpikeBlock& from,
                   float* spikes, Index spikes_step);

}  // namespace convoy::cpu
