// What a stage does to a sum before the one rounding, in one type that every family's kernels are
// given. A family says which sums it has, which channel each belongs to and where its pixel goes.
//
// All that follows a sum has its place here, in this order: the scale that makes fp32 of a sum of
// integers, the bias, the operand of an addition, the activation. Scale and addition do not exist
// yet. Each is a field of `PostOps` and an argument of `biased`; no family has code of its own for
// them.
#pragma once

#include <cstdint>

#include "cuda/activate.cuh"
#include "cuda/types.cuh"

namespace convoy::cuda {

struct PostOps {
  const float* bias;     // [k], fp32; null: none
  int k;                 // output channels
  DeviceActivation act;  // its bounds lie in eight bytes: one load from compute capability 9.0 on

  /// What to add to the sums of a channel, which exists.
  template <class Channel>  // int, or Index: a wider one costs instructions
  __device__ __forceinline__ float bias_of(Channel channel) const {
    return bias != nullptr ? addend(bias[channel]) : 0.0f;
  }
  /// The same of neighbouring channels, of which `left` exist.
  template <int Count, class Channel>
  __device__ __forceinline__ void bias_of(Channel channel, int left, float (&of)[Count]) const {
#pragma unroll
    for (int i = 0; i < Count; ++i)
      of[i] = bias != nullptr && i < left ? addend(bias[channel + i]) : 0.0f;
  }

  /// Biases as they lie in memory, 0 for channels that do not exist: for kernels that load them
  /// before their main loop and must not wait for them there. Each becomes an `addend` after it.
  /// Number i is channel `first + offset(i)`.
  template <int Count, class Offset>
  __device__ __forceinline__ void load_bias(int first, Offset offset, float (&of)[Count]) const {
#pragma unroll
    for (float& one : of) one = 0.0f;
    if (bias == nullptr) return;
    const float* const from = bias + first;  // one address, from which all others are constants
#pragma unroll
    for (int i = 0; i < Count; ++i)
      if (first + offset(i) < k) of[i] = from[offset(i)];
  }
  static __device__ __forceinline__ float addend(float loaded) {
    return positive_zero(loaded);
  }

  /// The value of one sum in two parts, between which lies what `pre` is (Keep), and a neuron.
  /// `its_bias`: from `bias_of`, or an `addend`.
  static __device__ __forceinline__ float biased(float sum, float its_bias) {
    return sum + its_bias;
  }
  __device__ __forceinline__ float activated(float v) const {
    return activate(act, v);
  }
  __device__ __forceinline__ float apply(float sum, float its_bias) const {
    return activated(biased(sum, its_bias));
  }

  /// For kernels that choose the form once for many sums, or clamp rounded values: `body` is called
  /// with the form, `formed` is `apply` without the clamp.
  template <class Body>
  __device__ __forceinline__ void with_form(Body body) const {
    cuda::with_form(act, body);
  }
  template <Form F>
  __device__ __forceinline__ float formed(float sum, float its_bias) const {
    return cuda::formed<F>(act, biased(sum, its_bias));
  }
  /// The form chosen for this sum alone.
  __device__ __forceinline__ float formed(float sum, float its_bias) const {
    float v = 0;
    with_form([&]<Form F>() { v = formed<F>(sum, its_bias); });
    return v;
  }
};

/// Of a stage; the bias is an operand of each run. Throws Error for a neuron.
inline PostOps post_ops_of(const Stage& stage) {
  return {nullptr, static_cast<int>(stage.k), device_activation(stage.act)};
}
/// Of a stage whose neuron, if it has one, is another part's business: what comes before that.
inline PostOps post_ops_before_neuron(const Stage& stage) {
  const Activation act = stage.act.is_neuron() ? Activation() : stage.act;
  return {nullptr, static_cast<int>(stage.k), device_activation(act)};
}

/// The clamp, min(max(v, low), high), of packed values. Rounding never decreases, so that clamping
/// after it gives the bits of clamping before, with half the instructions.
template <class T>
struct PackedClamp {
  std::uint32_t low, high;
  __device__ __forceinline__ explicit PackedClamp(const PostOps& post)
      : low(Element<T>::pack({post.act.low, post.act.low})),
        high(Element<T>::pack({post.act.high, post.act.high})) {}
  __device__ __forceinline__ std::uint32_t operator()(std::uint32_t v) const {
    return ptx::min2_nan<T>(ptx::max2_nan<T>(v, low), high);
  }
};

}  // namespace convoy::cuda
