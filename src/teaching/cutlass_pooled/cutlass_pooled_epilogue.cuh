// `cutlass_pooled`, step 2: CUTLASS's default epilogue for tensor cores, with the iterator of
// step 1 in place of the one that stores. All else is the default's: fragments of accumulators go
// through shared memory, so that a thread then holds neighbouring channels of a pixel.
#pragma once

#include <cutlass/epilogue/thread/linear_combination_relu.h>
#include <cutlass/epilogue/threadblock/default_epilogue_tensor_op.h>
#include <cutlass/epilogue/threadblock/epilogue.h>

#include "teaching/cutlass_pooled/cutlass_pooled_output.cuh"

namespace convoy::cuda::teaching {

/// Columns that a thread holds of a row. One, so that a warp's reduction covers 32 neighbouring
/// floats, four sectors of the L2; with four, as wide stores want it, it touches sixteen.
constexpr int cutlass_pooled_access = 1;

/// max(sum + bias, 0) in fp32, NaN handed on. The bias is the source operand, and always one: a
/// stage without has zeros there.
using CutlassPooledOperator = cutlass::epilogue::thread::LinearCombinationRelu<
    float, cutlass_pooled_access, float, float,
    cutlass::epilogue::thread::ScaleType::NoBetaScaling>;

template <class ThreadblockShape, class WarpMma, int PartitionsK>
struct CutlassPooledEpilogue {
  using Default = cutlass::epilogue::threadblock::DefaultEpilogueTensorOp<
      ThreadblockShape, WarpMma, PartitionsK, CutlassPooledOperator, cutlass_pooled_access>;
  using Output = CutlassPooledOutput<typename Default::OutputTileThreadMap>;
  using Type = cutlass::epilogue::threadblock::Epilogue<
      ThreadblockShape, WarpMma, PartitionsK, Output, typename Default::AccumulatorFragmentIterator,
      typename Default::WarpTileIterator, typename Default::SharedLoadIterator,
      CutlassPooledOperator, typename Default::Padding, Default::kFragmentsPerIteration>;
};

}  // namespace convoy::cuda::teaching
