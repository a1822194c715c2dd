// `cutlass_pooled`, step 1: CUTLASS's output iterator, which pools instead of storing.
//
// An epilogue of CUTLASS hands its iterator fragments of the matrix [N * P * Q, K]: each thread
// some rows and of each some neighbouring columns, as ThreadMap says. This one takes a row m to the
// pixel (n, p / 2, q / 2) and leaves there the maximum of what the window's four rows bring,
// whichever thread and CTA holds them.
#pragma once

#include <cutlass/array.h>
#include <cutlass/cutlass.h>
#include <cutlass/fast_math.h>
#include <cutlass/layout/matrix.h>
#include <cutlass/matrix_coord.h>
#include <cutlass/tensor_ref.h>

#include "teaching/cutlass_pooled/cutlass_pooled_map.hpp"

namespace convoy::cuda::teaching {

/// Bits of a float after ReLU, as an integer that grows with it: positive floats lie in the order
/// of their bits. -0 becomes +0, and a NaN of either sign is above infinity, so that it wins, as it
/// does in a pool of PyTorch.
__device__ __forceinline__ int ordered_bits(float v) {
  return __float_as_int(v) & 0x7fffffff;
}

template <class ThreadMap_>
class CutlassPooledOutput {
 public:
  // What CUTLASS's epilogue asks of an output iterator.
  using ThreadMap = ThreadMap_;
  using Element = float;
  using Layout = cutlass::layout::RowMajor;
  using TensorRef = cutlass::TensorRef<Element, Layout>;
  using ConstTensorRef = typename TensorRef::ConstTensorRef;
  static constexpr int kElementsPerAccess = ThreadMap::kElementsPerAccess;
  static constexpr int kIterations = ThreadMap::Count::kTile;
  using Repeat = typename ThreadMap::Iterations;
  static constexpr int rows_a_step = Repeat::kCluster * Repeat::kGroup * Repeat::kRow;
  using Fragment = cutlass::Array<float, rows_a_step * Repeat::kColumn * kElementsPerAccess>;

  struct Params {
    float* pooled;      // [N, P / 2, Q / 2, K], zero before the first CTA begins
    const float* bias;  // [K] or null
    int rows, columns;  // of the matrix: N * P * Q, K
    int pooled_q;       // Q / 2
    cutlass::FastDivmod by_q;
  };

  __device__ CutlassPooledOutput(const Params& params, cutlass::MatrixCoord tile, int thread)
      : params_(params) {
    const cutlass::MatrixCoord first = ThreadMap::initial_offset(thread) + tile;
    row_ = first.row();
    column_ = first.column();
  }

  /// The source operand, to which the output operator adds the sums: the bias, equal in all rows.
  __device__ void load(Fragment& fragment) const {
    CUTLASS_PRAGMA_UNROLL
    for (int column = 0; column < Repeat::kColumn; ++column) {
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kElementsPerAccess; ++v) {
        const int k = k_of(column) + v;
        const float bias =
            params_.bias != nullptr && k < params_.columns ? __ldg(params_.bias + k) : 0.0f;
        CUTLASS_PRAGMA_UNROLL
        for (int row = 0; row < rows_a_step; ++row) fragment[index(row, column) + v] = bias;
      }
    }
  }

  __device__ void store(const Fragment& fragment) const {
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < rows_a_step; ++row) {
      const int m = row_ + row_of_step() + offset_of(row);
      if (m >= params_.rows) continue;
      int rows, q;
      params_.by_q(rows, q, m);
      const int pixel = pooled_row(rows, q, params_.pooled_q);
      int* const to =
          reinterpret_cast<int*>(params_.pooled) + static_cast<long long>(pixel) * params_.columns;
      CUTLASS_PRAGMA_UNROLL
      for (int column = 0; column < Repeat::kColumn; ++column) {
        if (k_of(column) >= params_.columns) continue;
        CUTLASS_PRAGMA_UNROLL
        for (int v = 0; v < kElementsPerAccess; ++v)
          // No thread waits for the result: it is a reduction (RED), done in the L2.
          atomicMax(to + k_of(column) + v, ordered_bits(fragment[index(row, column) + v]));
      }
    }
  }

  __device__ CutlassPooledOutput& operator++() {
    ++step_;
    return *this;
  }

 private:
  CUTLASS_HOST_DEVICE static constexpr int index(int row, int column) {
    return (row * Repeat::kColumn + column) * kElementsPerAccess;
  }
  __device__ int k_of(int column) const { return column_ + column * ThreadMap::Delta::kColumn; }

  // Rows of a step, numbered as in the fragment: cluster, group, row.
  CUTLASS_HOST_DEVICE static constexpr int offset_of(int row) {
    const int in_group = row % Repeat::kRow, group = row / Repeat::kRow % Repeat::kGroup,
              cluster = row / (Repeat::kRow * Repeat::kGroup);
    return in_group * ThreadMap::Delta::kRow + group * ThreadMap::Delta::kGroup +
           cluster * ThreadMap::Delta::kCluster;
  }
  // Steps go through the rows of a group, then through groups, then through clusters; behind each
  // they pass over what other warps hold.
  __device__ int row_of_step() const {
    using Shape = typename ThreadMap::Shape;
    using Count = typename ThreadMap::Count;
    const int group = step_ / Count::kRow, cluster = group / Count::kGroup;
    constexpr int rows_a_group = Shape::kRow * Count::kRow;
    return step_ * Shape::kRow + group * (Shape::kGroup - 1) * rows_a_group +
           cluster * Count::kGroup * Shape::kGroup * rows_a_group;
  }

  const Params& params_;
  int row_, column_;
  int step_ = 0;
};

}  // namespace convoy::cuda::teaching
