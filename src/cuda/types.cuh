// Element types on the device: what each is, in one place. Adding a DType makes every switch here
// an error of the compiler until it says what it does with it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "convoy/stage.hpp"
#include "math/host_device.hpp"

namespace convoy::cuda {

/// A floating-point type that kernels are compiled for.
template <class T>
struct Element;

/// What a main loop over elements of T sums in, and hands to its epilogue. A type of integers would
/// say int32.
template <class T>
using Sum = typename Element<T>::Sum;

template <>
struct Element<float> {
  using Sum = float;
  static constexpr int a_word = 1;  // elements of 32 bits
  static __device__ __forceinline__ float widen(float v) { return v; }
  static __device__ __forceinline__ float round(float v) { return v; }
  static __device__ __forceinline__ void unpack(std::uint32_t word, float (&to)[1]) {
    to[0] = __uint_as_float(word);
  }
  static __device__ __forceinline__ std::uint32_t pack(const float (&from)[1]) {
    return __float_as_uint(from[0]);
  }
};

template <>
struct Element<__half> {
  using Sum = float;
  static constexpr int a_word = 2;
  static __device__ __forceinline__ float widen(__half v) { return __half2float(v); }
  static __device__ __forceinline__ __half round(float v) { return __float2half_rn(v); }
  static __device__ __forceinline__ void unpack(std::uint32_t word, float (&to)[2]) {
    const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&word));
    to[0] = two.x, to[1] = two.y;
  }
  static __device__ __forceinline__ std::uint32_t pack(const float (&from)[2]) {
    const __half2 two = __floats2half2_rn(from[0], from[1]);
    return *reinterpret_cast<const std::uint32_t*>(&two);
  }
};

template <>
struct Element<__nv_bfloat16> {
  using Sum = float;
  static constexpr int a_word = 2;
  static __device__ __forceinline__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }
  static __device__ __forceinline__ __nv_bfloat16 round(float v) { return __float2bfloat16_rn(v); }
  static __device__ __forceinline__ void unpack(std::uint32_t word, float (&to)[2]) {
    to[0] = __uint_as_float(word << 16);
    to[1] = __uint_as_float(word & 0xffff0000u);
  }
  static __device__ __forceinline__ std::uint32_t pack(const float (&from)[2]) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(from[0], from[1]);
    return *reinterpret_cast<const std::uint32_t*>(&two);
  }
};

/// The kernel that `find.operator()<T>()` gives for a type; null for one that is not compiled,
/// which loading it refuses with a message.
template <class Find>
auto for_float(DType type, Find find) -> decltype(find.template operator()<float>()) {
  switch (type) {
    case DType::f32:
      return find.template operator()<float>();
    case DType::f16:
      return find.template operator()<__half>();
    case DType::bf16:
      return find.template operator()<__nv_bfloat16>();
    case DType::u8:
    case DType::i32:
      break;
  }
  return nullptr;
}
/// Of 16 bits only.
template <class Find>
auto for_16_bits(DType type, Find find) -> decltype(find.template operator()<__half>()) {
  switch (type) {
    case DType::f16:
      return find.template operator()<__half>();
    case DType::bf16:
      return find.template operator()<__nv_bfloat16>();
    case DType::f32:
    case DType::u8:
    case DType::i32:
      break;
  }
  return nullptr;
}

/// Element `i` of an array whose type is known at run time. Host and device, so that the host's
/// compiler checks the switch.
CONVOY_HD float load(const void* data, DType type, Index i) {
  switch (type) {
    case DType::f16:
      return __half2float(static_cast<const __half*>(data)[i]);
    case DType::bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::u8:
      return static_cast<float>(static_cast<const std::uint8_t*>(data)[i]);
    case DType::i32:
      return static_cast<float>(static_cast<const std::int32_t*>(data)[i]);
    case DType::f32:
      return static_cast<const float*>(data)[i];
  }
  __builtin_unreachable();
}

/// Whether `store` takes the type: those that an output may have.
constexpr bool is_output_type(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return true;
    case DType::u8:
    case DType::i32:
      break;
  }
  return false;
}

/// Rounds, stores unless `data` is null, and returns the value as the output type holds it.
CONVOY_HD float store(void* data, DType type, Index i, float v) {
  switch (type) {
    case DType::f16: {
      const __half rounded = __float2half_rn(v);
      if (data != nullptr) static_cast<__half*>(data)[i] = rounded;
      return __half2float(rounded);
    }
    case DType::bf16: {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(v);
      if (data != nullptr) static_cast<__nv_bfloat16*>(data)[i] = rounded;
      return __bfloat162float(rounded);
    }
    case DType::f32:
      if (data != nullptr) static_cast<float*>(data)[i] = v;
      return v;
    case DType::u8:
    case DType::i32:
      break;
  }
  __builtin_unreachable();  // is_output_type
}

}  // namespace convoy::cuda
