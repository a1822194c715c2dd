// The oracle: what a stage means, in loops that read like the definition. Slow on purpose.
//
// Every kernel is judged by it, and it by golden files that PyTorch and SpikingJelly computed.
#pragma once

#include <span>
#include <vector>

#include "convoy/plan.hpp"
#include "core/threads.hpp"

namespace convoy::reference {

/// How the sums and what follows them are formed.
enum class Sum {
  exact,       // summed in double, rounded once to fp32; then fp32 steps and one last rounding
  real,        // double from start to end, never rounded: y64
  sequential,  // one fp32 accumulator, as Sequence says: the yardstick for rounding errors. What
               // it multiplies has the type the stage multiplies in, after `norm` too
  magnitude,   // what rounding errors are measured against, in double: the sum of |x·w|, plus
               // |bias|, times the slope of an activation where that is above 1. Of no neuron
};

/// The products of a sequential sum: begun at `first` of the order c, r, s or r, s, c, and ended at
/// the one before.
struct Sequence {
  bool channels_last = false;  // r, s, c
  Index first = 0;
  bool fma = true;  // false: products are rounded too, as by machines without FMA
};

/// One pixel of the convolution's output, all filters.
struct Pixel {
  Index n = 0, p = 0, q = 0;
};

/// What happens at one pixel: [T,K] of pre and act, [K] of the last membrane. Not yet rounded to
/// the output type.
struct Trace {
  std::vector<double> pre, act, membrane;
};

/// One pooling window: [T,K]. y is rounded to the output type where the arithmetic is fp32.
struct Window {
  std::vector<double> y;
  std::vector<std::int32_t> idx;
};

/// All outputs, dense: y and idx [T,N,P',Q',K], pre and act [T,N,P,Q,K], membrane [N,P,Q,K] of a
/// neuron, whatever the stage's layout. Rounded to the output type (membranes to fp32) where the
/// arithmetic is fp32.
struct Outputs {
  std::vector<double> y, pre, act, membrane;
  std::vector<std::int32_t> idx;
};

/// How near to its threshold a membrane may lie so that rounding, not the kernel, decides on the
/// spike.
double spike_margin(double threshold);

/// The stage with the output type written out where a device has another default for it (u8): the
/// oracle knows no device.
Stage for_device(Stage stage, DeviceKind device);

/// A stage with its inputs as doubles (weights as fp32, which holds them all exactly). Weights
/// [K,R,S,C/groups] are f32, f16 or bf16; of the operands x, bias, norm_* and membrane_in are read,
/// with any strides. Host memory only. Throws Error when the stage is illegal; the shapes of the
/// views are taken on trust.
class Oracle {
 public:
  Oracle(const Stage& stage, const ConstTensorView& weights, const Operands& operands, Sum sum,
         Sequence sequence = {});

  /// conv(x, w) at one pixel in one time step, [K].
  void convolve(Index t, Pixel at, std::span<double> sums) const;
  Trace trace(Pixel at) const;
  /// Window (i, j) of image n, its pixels traced anew.
  Window window(Index n, Index i, Index j) const;
  Outputs all(Threads& threads) const;

  const Shapes& shapes() const { return shapes_; }

 private:
  /// Nothing is rounded.
  bool in_double() const { return sum_ == Sum::real || sum_ == Sum::magnitude; }
  double round(double value) const;  // to the output type
  Window pool(Index i, Index j, const std::vector<Trace>& plane, Index plane_row,
              Index plane_column, Index plane_width) const;

  Stage stage_;
  Shapes shapes_;
  Sum sum_;
  Sequence sequence_;
  std::vector<double> x_;  // [T,N,H,W,C] after norm; T = 1 when held
  std::vector<float> w_;   // [R,S,C/groups,K]: all filters of a tap side by side
  std::vector<double> bias_;
  std::vector<double> membrane_in_;
};

}  // namespace convoy::reference
