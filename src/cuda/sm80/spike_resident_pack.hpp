// Kernel `spike_resident`: what the weights, biases and pixel values of a chain become. Plain
// arithmetic; needs no GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kernel.hpp"
#include "cuda/sm80/spike_resident_params.hpp"

namespace convoy::cuda::sm80 {

/// On the host, as the kernel wants it.
///
/// Weights are two f16 terms each, hi + lo, of the weight times a power of two that keeps lo from
/// being subnormal; with inputs 0 and 1, or small integers, sums are as good as fp32's. Weights
/// that are f16 numbers have no lo.
///
/// Pixels are integers, and x' of pixel u is first + range * u / 255. So that sums of integers and
/// weights stay exact, range / 255 is not in the weights of the first layer but in the scale of its
/// sums, which has two parts and multiplies them as exactly as a division by 255 would. Channels of
/// several ranges have these in their weights.
///
/// Weights lie
/// [product][eight filters][lane]{hi unit 0, hi unit 1, lo unit 0, lo unit 1}, two values each.
struct ResidentConstants {
  std::vector<std::byte> shared;  // as in ResidentLayout::constants_bytes
  std::vector<std::byte> linear;  // as in ResidentLayout::linear_bytes
  std::array<ResidentScale, most_layers> of{};
  /// x' of a pixel value, f16, [C][256]; empty: that of pixel u is u, what makes x' of
  /// it is in weights and bias.
  std::vector<std::uint16_t> values;
};

/// One element of `all` a stage. Throws Error for what f16 terms can't hold: weights and sums that
/// are not finite or too large, pixel values that lie on no line and are no f16 numbers.
ResidentConstants pack_resident(const Chain& chain, const ResidentLayout& layout,
                                std::span<const Parameters> all);

}  // namespace convoy::cuda::sm80
