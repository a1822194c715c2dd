// `cutlass_pooled`, step 5: what a launch is. The buffer is cleared, the convolution pools into it,
// a last kernel rounds it to f16. That a stage may be run at all says refuse_cutlass_pooled,
// which needs no GPU and no CUTLASS.
#pragma once

#include "core/stage_text.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"
#include "teaching/cutlass_pooled/cutlass_pooled_default.cuh"

namespace convoy::cuda::teaching {

template <class Conv>
__global__ void __launch_bounds__(Conv::threads)
    cutlass_pooled(const __grid_constant__ typename Conv::Params params) {
  extern __shared__ __align__(16) unsigned char shared[];
  Conv::run(params, *reinterpret_cast<typename Conv::SharedStorage*>(shared));
}

inline cutlass::layout::TensorNHWC nhwc_layout(Index pixel, Index w, Index h) {
  return {static_cast<int>(pixel), static_cast<int>(pixel * w), static_cast<int>(pixel * w * h)};
}

/// `Shape` and `Warp`: the GemmShapes of a CTA and of a warp.
template <class Shape, class Warp>
class CutlassPooledDevice final : public CutlassPooledLaunch {
  using Conv = typename DefaultCutlassPooled<Shape, Warp, cutlass_pooled_stages>::Kernel;
  using Params = typename Conv::Params;
  static constexpr int shared_bytes = sizeof(typename Conv::SharedStorage);
  static_assert(shared_bytes == cutlass_pooled_shared_bytes({Shape::kM, Shape::kN}) &&
                    Shape::kK == cutlass_pooled_depth && Conv::threads == cutlass_pooled_threads,
                "cutlass_pooled.hpp says what the tile needs");

 public:
  explicit CutlassPooledDevice(const Stage& stage)
      : stage_(stage), kernel_(cutlass_pooled<Conv>, "cutlass_pooled for " + to_text(stage)) {
    const auto problem = problem_of(stage.n);
    // What CUTLASS itself says: our refusals leave nothing for it to object to.
    if (Conv::IteratorA::can_implement(problem) != cutlass::Status::kSuccess ||
        Conv::IteratorB::can_implement(problem) != cutlass::Status::kSuccess)
      throw Error("CUTLASS's iterators refuse " + to_text(stage) +
                  ", which cutlass_pooled took. Please report it.");
    if (std::string error = cutlass_pooled_round_ready(); !error.empty()) throw Error(error);
  }

  std::string run(const CutlassPooledRun& run, cudaStream_t stream) const noexcept override {
    const Shapes shapes = shapes_of(stage_);
    const Index pixels = run.n * shapes.out_h * shapes.out_w;
    cudaError_t error = cudaMemsetAsync(
        run.pooled, 0, static_cast<std::size_t>(pixels * stage_.k) * sizeof(float), stream);
    if (error == cudaSuccess) {
      Params params(problem_of(run.n), nhwc_layout(run.x_pixel, stage_.w, stage_.h),
                    nhwc_layout(stage_.c, stage_.s, stage_.r));
      params.x = static_cast<const cutlass::half_t*>(run.x);
      params.w = static_cast<const cutlass::half_t*>(run.w);
      params.output.bias = run.bias;
      params.output.pooled = run.pooled;
      error = kernel_.launch({params.ctas(), Conv::threads, shared_bytes, stream}, params);
    }
    if (error != cudaSuccess)
      return describe(error, "launching cutlass_pooled for " + to_text(stage_));
    return cutlass_pooled_round(run.pooled, run.y, pixels, stage_.k, run.y_pixel, stream);
  }

 private:
  cutlass::conv::Conv2dProblemSize problem_of(Index n) const {
    const Shapes shapes = shapes_of(stage_);
    const auto narrow = [](Index i) { return static_cast<int>(i); };  // refusals see that it fits
    const Stage& s = stage_;
    // Padding below and at the right is what P and Q leave: its iterators check every coordinate.
    return {narrow(n),          narrow(s.h),
            narrow(s.w),        narrow(s.c),
            narrow(s.k),        narrow(s.r),
            narrow(s.s),        narrow(shapes.p),
            narrow(shapes.q),   narrow(s.pad.top),
            narrow(s.pad.left), narrow(s.stride.h),
            narrow(s.stride.w), narrow(s.dil.h),
            narrow(s.dil.w),    cutlass::conv::Mode::kCrossCorrelation};
  }

  Stage stage_;
  LoadedKernel<Params> kernel_;
};

}  // namespace convoy::cuda::teaching
