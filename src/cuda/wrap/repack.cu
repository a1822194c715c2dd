// Packed weights from weights on the device: each packed value by the map that the plan made
// (plan/repack.hpp). Memory bounds it. Few CTAs, which end at once if nothing has changed.
#include <algorithm>

#include "core/gpu.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/memory.hpp"
#include "math/half.hpp"
#include "math/winograd.hpp"

namespace convoy::cuda {
namespace {

constexpr int of_cta = 256;
constexpr Index most_ctas = 4096;  // more than an H200 holds at once

struct FillParams {
  const void* from;
  const std::int32_t* map;
  const std::int32_t* changed;  // null: always
  void* to;
  Index count, k, c, origin;
  Index stride[4];
  DType from_type, held, rounded;
};

__device__ void store(const FillParams& p, Index i, float value) {
  math::store(p.held, p.to, i, math::round_to(p.rounded, value));
}

__device__ Index first_of_thread() {
  return static_cast<Index>(blockIdx.x) * of_cta + threadIdx.x;
}

__device__ Index values_of_grid() {
  return static_cast<Index>(gridDim.x) * of_cta;
}

__global__ void gather(FillParams p) {
  if (p.changed && *p.changed == 0) return;
  for (Index i = first_of_thread(); i < p.count; i += values_of_grid()) {
    const std::int32_t from = p.map[i];
    store(p, i, from < 0 ? 0.0F : math::load(p.from_type, p.from, from));
  }
}

// As math::winograd4::transform_filter, without fused multiply-adds: the host rounds each product.
__device__ double filter_point(const double (&w)[3], int point) {
  using namespace math::winograd4;
  if (point == 0) return w[0];
  if (point == 5) return w[2];
  const double at = point < 3 ? point_a : point_b, square = point < 3 ? aa : bb;
  const double odd = __dmul_rn(at, w[1]);
  const double first = (point & 1) != 0 ? __dadd_rn(w[0], odd) : __dsub_rn(w[0], odd);
  return __dadd_rn(first, __dmul_rn(square, w[2]));
}

__device__ float transformed(const FillParams& p, std::int32_t from) {
  const Index c = from % p.c, k = from / p.c % p.k;
  const int point = static_cast<int>(from / p.c / p.k);
  double row[3];
  for (int s = 0; s < 3; ++s) {
    double column[3];
    for (int r = 0; r < 3; ++r)
      column[r] = math::load(
          p.from_type, p.from,
          p.origin + k * p.stride[0] + r * p.stride[1] + s * p.stride[2] + c * p.stride[3]);
    row[s] = filter_point(column, point / math::winograd4::inputs);
  }
  return static_cast<float>(filter_point(row, point % math::winograd4::inputs));
}

__global__ void transform(FillParams p) {
  if (p.changed && *p.changed == 0) return;
  for (Index i = first_of_thread(); i < p.count; i += values_of_grid()) {
    const std::int32_t from = p.map[i];
    store(p, i, from < 0 ? 0.0F : transformed(p, from));
  }
}

}  // namespace
}  // namespace convoy::cuda

namespace convoy::gpu {

void fill(Device device, Stream stream, const Fill& fill) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  cuda::FillParams p{};
  p.from = fill.from, p.map = fill.map, p.changed = fill.changed, p.to = fill.to.data;
  p.count = fill.to.count, p.k = fill.k, p.c = fill.c, p.origin = fill.origin;
  for (std::size_t i = 0; i < 4; ++i) p.stride[i] = fill.stride[i];
  p.from_type = fill.from_type, p.held = fill.to.held, p.rounded = fill.to.rounded;
  const auto blocks =
      static_cast<int>(std::min((p.count + cuda::of_cta - 1) / cuda::of_cta, cuda::most_ctas));
  // It does not overlap the kernel before it, which may still read what this writes.
  const cuda::Launch how{blocks, cuda::of_cta, 0, static_cast<cudaStream_t>(stream.handle)};
  cuda::check(cuda::launch(fill.to.of_transforms ? cuda::transform : cuda::gather, how, p),
              "launching the packing of weights");
}

void finish_fills(Device device, Stream stream, std::int32_t* changed) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  // A dependent launch overlaps with a kernel right in front of it. Behind anything else it starts
  // when all is done and flushed. CUDA C++ Programming Guide, "Programmatic Dependent Launch and
  // Synchronization".
  cuda::check(
      cudaMemsetAsync(changed, 0, sizeof *changed, static_cast<cudaStream_t>(stream.handle)),
      "ending the packing of weights");
}

}  // namespace convoy::gpu
