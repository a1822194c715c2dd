// Packed weights from weights on the device: each packed value by the map that the plan made
// (plan/repack.hpp). Memory bounds it. Few CTAs, which end at once if nothing has changed.
#include <algorithm>
#include <vector>

#include "core/gpu.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/memory.hpp"
#include "cuda/wrap/table.hpp"
#include "math/half.hpp"
#include "math/winograd.hpp"

namespace convoy::cuda {
namespace {

constexpr int of_cta = 256;
constexpr Index most_ctas = 4096;    // more than an H200 holds at once
constexpr int ctas_of_group = 1024;  // as many as it holds: the look at the flags is short

struct FillParams {
  const void* from;
  const std::int32_t* map;
  const std::int32_t* changed;  // null: always
  void* to;
  Index count, k, c, origin;
  Index stride[4];
  DType from_type, held, rounded;
  bool of_transforms;
  // Of a group only.
  gpu::FoldedNorm norm;
  Index filter_elements;
  bool shifts;
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

__device__ float load(const gpu::FoldedNorm::Vector& vector, Index k) {
  return math::load(vector.type, vector.data, k);
}

// Each product and sum is rounded, as by the tensor operations of python/convoy/gradients.py.
__device__ float scale_of(const gpu::FoldedNorm& norm, Index k) {
  const float inverse = rsqrtf(__fadd_rn(load(norm.variance, k), norm.eps));
  return norm.gamma.data ? __fmul_rn(inverse, load(norm.gamma, k)) : inverse;
}

__device__ float shift_of(const gpu::FoldedNorm& norm, Index k) {
  if (!norm.variance.data) return load(norm.bias, k);
  const float mean = load(norm.mean, k);
  const float centred = norm.bias.data ? __fsub_rn(load(norm.bias, k), mean) : -mean;
  const float shift = __fmul_rn(centred, scale_of(norm, k));
  return norm.beta.data ? __fadd_rn(shift, load(norm.beta, k)) : shift;
}

__device__ float weight(const FillParams& p, Index from, Index k) {
  const float value = math::load(p.from_type, p.from, from);
  return p.norm.variance.data ? __fmul_rn(value, scale_of(p.norm, k)) : value;
}

__device__ float gathered(const FillParams& p, std::int32_t from) {
  return weight(p, from, p.norm.variance.data ? from / p.filter_elements : 0);
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
      column[r] = weight(
          p, p.origin + k * p.stride[0] + r * p.stride[1] + s * p.stride[2] + c * p.stride[3], k);
    row[s] = filter_point(column, point / math::winograd4::inputs);
  }
  return static_cast<float>(filter_point(row, point % math::winograd4::inputs));
}

/// The block's values, shared out among all threads of the grid.
__device__ void fill_block(const FillParams& p) {
  for (Index i = first_of_thread(); i < p.count; i += values_of_grid()) {
    const std::int32_t from = p.map[i];
    store(p, i, from < 0 ? 0.0F : p.of_transforms ? transformed(p, from) : gathered(p, from));
  }
}

__global__ void __launch_bounds__(of_cta) fill(FillParams p) {
  if (p.changed && *p.changed == 0) return;
  fill_block(p);
}

__global__ void __launch_bounds__(of_cta)
    fill_group(const FillParams* all, int count, const std::int32_t* changed, int flags) {
  // One look at all flags: in most calls none is set.
  bool any = false;
  for (int i = static_cast<int>(threadIdx.x); i < flags; i += of_cta) any |= changed[i] != 0;
  if (__syncthreads_or(any) == 0) return;
  for (int block = 0; block < count; ++block) {
    if (*all[block].changed == 0) continue;
    const FillParams p = all[block];
    fill_block(p);
    if (!p.shifts) continue;
    for (Index k = first_of_thread(); k < p.norm.filters; k += values_of_grid())
      p.norm.shift[k] = shift_of(p.norm, k);
  }
}

FillParams params_of(const gpu::Fill& fill) {
  FillParams p{};
  p.from = fill.from, p.map = fill.map, p.changed = fill.changed, p.to = fill.to.data;
  p.count = fill.to.count, p.k = fill.k, p.c = fill.c, p.origin = fill.origin;
  for (std::size_t i = 0; i < 4; ++i) p.stride[i] = fill.stride[i];
  p.from_type = fill.from_type, p.held = fill.to.held, p.rounded = fill.to.rounded;
  p.of_transforms = fill.to.of_transforms;
  return p;
}

}  // namespace
}  // namespace convoy::cuda

namespace convoy::gpu {

void fill(Device device, Stream stream, const Fill& fill) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  const cuda::FillParams p = cuda::params_of(fill);
  const auto blocks =
      static_cast<int>(std::min((p.count + cuda::of_cta - 1) / cuda::of_cta, cuda::most_ctas));
  // It does not overlap the kernel before it, which may still read what this writes.
  const cuda::Launch how{blocks, cuda::of_cta, 0, static_cast<cudaStream_t>(stream.handle)};
  cuda::check(cuda::launch(cuda::fill, how, p), "launching the packing of weights");
}

Table fill_table(Device device, std::span<const GroupFill> fills) {
  std::vector<cuda::FillParams> rows;
  for (const GroupFill& one : fills) {
    cuda::FillParams& row = rows.emplace_back(cuda::params_of(one.fill));
    row.norm = one.norm, row.filter_elements = one.filter_elements, row.shifts = one.shifts;
  }
  return cuda::table_of(device, rows, cuda::ctas_of_group);
}

void fill_group(Device device, Stream stream, const Table& fills, const std::int32_t* changed,
                Index flags) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  const cuda::Launch how{fills.ctas, cuda::of_cta, 0, static_cast<cudaStream_t>(stream.handle)};
  cuda::check(
      cuda::launch(cuda::fill_group, how,
                   reinterpret_cast<const cuda::FillParams*>(fills.rows.data<std::uint8_t>()),
                   static_cast<int>(fills.count), changed, static_cast<int>(flags)),
      "launching the packing of all weights");
}

void finish_fills(Device device, Stream stream, std::int32_t* changed, Index flags) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  // A dependent launch overlaps with a kernel right in front of it. Behind anything else it starts
  // when all is done and flushed. CUDA C++ Programming Guide, "Programmatic Dependent Launch and
  // Synchronization".
  cuda::check(cudaMemsetAsync(changed, 0, static_cast<std::size_t>(flags) * sizeof *changed,
                              static_cast<cudaStream_t>(stream.handle)),
              "ending the packing of weights");
}

}  // namespace convoy::gpu
