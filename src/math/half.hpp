// Conversion to and from the small types. Host and device; round to nearest even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "convoy/stage.hpp"
#include "math/host_device.hpp"

namespace convoy::math {

CONVOY_HD std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
CONVOY_HD float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// f16 bits to fp32, exact. Subnormals, infinities and NaN included.
CONVOY_HD float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffU) << 13;
  // Read as fp32 the exponent is 112 too small; the product puts it right, subnormals included.
  const float scaled = float_of(magnitude) * 0x1p112F;
  const bool special = magnitude >= 0x0f800000U;  // the exponent was all ones
  return float_of(sign | (special ? (magnitude | 0x7f800000U) : bits_of(scaled)));
}

/// fp32 to f16 bits: nearest even, beyond 65,504 + half a step infinity, NaN stays a quiet NaN.
CONVOY_HD std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U;
  } else if (magnitude >= 0x477ff000U) {  // 65,520: rounds to infinity
    half = 0x7c00U;
  } else if (magnitude < 0x38800000U) {
    // Subnormal: adding 0.5 puts the last bit of f16 at the last bit of fp32, and rounds there.
    half = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
  } else {
    half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

CONVOY_HD float bfloat_to_float(std::uint16_t value) {
  return float_of(static_cast<std::uint32_t>(value) << 16);
}

/// fp32 to bf16 bits: nearest even, overflow to infinity, NaN stays a quiet NaN.
CONVOY_HD std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// The fp32 value that is left of `value` once it is stored as `dtype`.
CONVOY_HD float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::f16:
      return half_to_float(float_to_half(value));
    case DType::bf16:
      return bfloat_to_float(float_to_bfloat(value));
    case DType::f32:
    case DType::u8:
    case DType::i32:
      break;  // nothing is rounded to whole numbers
  }
  return value;
}

/// Element `i` of an array of any input type, as fp32.
CONVOY_HD float load(DType dtype, const void* data, Index i) {
  switch (dtype) {
    case DType::f16:
      return half_to_float(static_cast<const std::uint16_t*>(data)[i]);
    case DType::bf16:
      return bfloat_to_float(static_cast<const std::uint16_t*>(data)[i]);
    case DType::u8:
      return static_cast<float>(static_cast<const std::uint8_t*>(data)[i]);
    case DType::i32:
      return static_cast<float>(static_cast<const std::int32_t*>(data)[i]);
    case DType::f32:
      break;
  }
  return static_cast<const float*>(data)[i];
}

/// Rounds once and stores as element `i` of an array of an output type: f32, f16 or bf16.
CONVOY_HD void store(DType dtype, void* data, Index i, float value) {
  switch (dtype) {
    case DType::f16:
      static_cast<std::uint16_t*>(data)[i] = float_to_half(value);
      break;
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[i] = float_to_bfloat(value);
      break;
    case DType::f32:
      static_cast<float*>(data)[i] = value;
      break;
    case DType::u8:
    case DType::i32:
      break;  // no stage's output
  }
}

/// x' = x·scale + shift of the `norm` rider: one fused multiply-add. Every kernel forms it so,
/// for the bits of kernels that share an arithmetic are compared.
CONVOY_HD float normalise(float x, float scale, float shift) {
  return fmaf(x, scale, shift);
}

}  // namespace convoy::math
