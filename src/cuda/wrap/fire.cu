// neurons: a thread takes four channels of a pixel, or of a window of the pool, through all steps,
// or one where K is no multiple of four. Its membranes stay in registers.
#include "cuda/charge.cuh"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/ptx/sync.cuh"
#include "cuda/types.cuh"
#include "cuda/wrap/fire.hpp"

namespace convoy::cuda {
namespace {

constexpr int threads = 128, ctas = 4;  // of a multiprocessor, at least
constexpr int ahead = 4;                // steps whose sums are on their way together

struct FireParams {
  FireRun pass;
  DeviceNeuron neuron;
  Index sums_step, plane_step;  // elements from step to step: of sums (0: held), of pre and act
  int steps, p, q, k;
  int parts, of_pixel, columns, rows;  // threads' parts, and how they lie: vectors, windows
};

template <class T, int Lanes>
struct alignas(Lanes * sizeof(T)) Vector {
  T v[Lanes];
};

template <class T, int Lanes>
__device__ __forceinline__ void round_to(void* to, Index at, const float (&from)[Lanes]) {
  Vector<T, Lanes> values;
#pragma unroll
  for (int lane = 0; lane < Lanes; ++lane) values.v[lane] = Element<T>::round(from[lane]);
  *reinterpret_cast<Vector<T, Lanes>*>(static_cast<T*>(to) + at) = values;
}

/// Pixels of a part: those of a window, of which the plane's last row and column may lack some.
template <int Window, int Lanes>
struct Part {
  static constexpr int pixels = Window * Window;
  int channel, x, y, n;  // of the window's first pixel, in windows
  bool there[pixels];
  Index at[pixels];  // in [n,P,Q,K]
  bool whole;

  __device__ __forceinline__ Part(const FireParams& g, int number) {
    const int window = number / g.of_pixel, row = window / g.columns;
    channel = (number - window * g.of_pixel) * Lanes;
    x = window - row * g.columns;
    n = row / g.rows;
    y = row - n * g.rows;
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      const int q = Window * x + i % Window, p = Window * y + i / Window;
      there[i] = q < g.q && p < g.p;
      at[i] = ((Index{n} * g.p + p) * g.q + q) * g.k + channel;
    }
    whole = there[pixels - 1];
  }
};

template <class T, Charge By, int Window, int Lanes>
__device__ __forceinline__ void take_steps(const FireParams& g, const Part<Window, Lanes>& part) {
  constexpr int pixels = Part<Window, Lanes>::pixels;
  using Sums = Vector<float, Lanes>;
  const FireRun& pass = g.pass;
  float v[pixels][Lanes] = {};
  // Calls `body(its, m)` for each of the part's neurons and the place of its membrane, which may
  // lie on no vector.
  const auto each_membrane = [&](auto body) {
#pragma unroll
    for (int i = 0; i < pixels; ++i)
#pragma unroll
      for (int lane = 0; lane < Lanes; ++lane)
        if (part.there[i]) body(v[i][lane], part.at[i] + lane);
  };
  if (pass.membrane_in != nullptr)
    each_membrane([&](float& its, Index m) { its = pass.membrane_in[m]; });
  const auto step = [&](int t, const Sums(&sums)[pixels]) {
    float fired[Lanes] = {};
#pragma unroll
    for (int i = 0; i < pixels; ++i) {
      float spikes[Lanes];
#pragma unroll
      for (int lane = 0; lane < Lanes; ++lane) {
        float& its = v[i][lane];
        its = charged<By>(g.neuron, its, sums[i].v[lane]);
        spikes[lane] = math::fire(its, g.neuron.threshold);
        fired[lane] = fmaxf(fired[lane], spikes[lane]);
      }
      const Index at = t * g.plane_step + part.at[i];
      if (pass.pre != nullptr && part.there[i]) round_to<T>(pass.pre, at, v[i]);
      if (pass.act != nullptr && part.there[i]) round_to<T>(pass.act, at, spikes);
#pragma unroll
      for (int lane = 0; lane < Lanes; ++lane)
        v[i][lane] = math::reset(v[i][lane], g.neuron.threshold, spikes[lane], g.neuron.soft);
    }
    const Strides& to = pass.y_stride;
    if (pass.y != nullptr && part.whole)
      round_to<T>(pass.y, t * to.t + part.n * to.n + part.y * to.h + part.x * to.w + part.channel,
                  fired);
  };
  for (int first = 0; first < g.steps; first += ahead) {
    Sums sums[ahead][pixels] = {};
#pragma unroll
    for (int t = 0; t < ahead; ++t)
#pragma unroll
      for (int i = 0; i < pixels; ++i)
        if (first + t < g.steps && part.there[i])
          sums[t][i] =
              *reinterpret_cast<const Sums*>(pass.sums + (first + t) * g.sums_step + part.at[i]);
#pragma unroll
    for (int t = 0; t < ahead; ++t)
      if (first + t < g.steps) step(first + t, sums[t]);
  }
  if (pass.membrane_out != nullptr)
    each_membrane([&](float its, Index m) { pass.membrane_out[m] = its; });
}

template <class T, int Window, int Lanes>
__global__ void __launch_bounds__(threads, ctas) neurons(const __grid_constant__ FireParams g) {
#if __CUDA_ARCH__ >= 900
  ptx::grid_launch_dependents();
#endif
  const int number = blockIdx.x * threads + threadIdx.x;
  const Part<Window, Lanes> part(g, number);
  ptx::grid_dependency_wait();
  if (number >= g.parts) return;
  with_charge(g.neuron.charge, [&]<Charge By>() { take_steps<T, By>(g, part); });
}

using NeuronsKernel = void (*)(FireParams);

NeuronsKernel kernel_of(const Stage& stage, int window) {
  return for_float(stage.output_dtype(true), [&]<class T>() -> NeuronsKernel {
    if (fire_channels(stage.k) == 1) return window == 2 ? neurons<T, 2, 1> : neurons<T, 1, 1>;
    return window == 2 ? neurons<T, 2, 4> : neurons<T, 1, 4>;
  });
}

}  // namespace

std::string fire_ready(const Stage& stage) {
  for (const int window : {1, 2}) {
    const NeuronsKernel kernel = kernel_of(stage, window);
    const cudaError_t error = kernel == nullptr ? cudaErrorInvalidValue : load(kernel);
    if (error != cudaSuccess) return describe(error, "loading neurons");
  }
  return {};
}

std::string fire_launch(const Stage& stage, const FireRun& pass, bool overlap_previous,
                        cudaStream_t stream) noexcept {
  const Shapes shapes = shapes_of(stage);
  const auto i = [](Index v) { return static_cast<int>(v); };
  const int window = pass.y != nullptr && stage.pool ? 2 : 1;
  FireParams g{};
  g.pass = pass;
  g.neuron = device_neuron(stage);
  g.plane_step = pass.n * shapes.p * shapes.q * stage.k;
  g.sums_step = stage.hold ? 0 : g.plane_step;
  g.steps = i(stage.t), g.p = i(shapes.p), g.q = i(shapes.q), g.k = i(stage.k);
  g.columns = (g.q + window - 1) / window, g.rows = (g.p + window - 1) / window;
  g.of_pixel = i(stage.k / fire_channels(stage.k));
  g.parts = i(pass.n * g.rows * g.columns * g.of_pixel);
  const cudaError_t error = launch(kernel_of(stage, window),
                                   {.grid = (g.parts + threads - 1) / threads,
                                    .threads = threads,
                                    .stream = stream,
                                    .overlap_previous = overlap_previous},
                                   g);
  if (error == cudaSuccess) return {};
  return describe(error, "launching neurons for " + to_text(stage));
}

}  // namespace convoy::cuda
