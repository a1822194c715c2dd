// `cutlass_pooled`, step 3: CUTLASS's default convolution for Ampere's tensor cores, with the
// epilogue of step 2.
#pragma once

#include <cutlass/arch/mma.h>
#include <cutlass/conv/kernel/default_conv2d_fprop.h>
#include <cutlass/gemm/gemm.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>
#include <cutlass/layout/tensor.h>
#include <cutlass/numeric_types.h>

#include <type_traits>

#include "teaching/cutlass_pooled/cutlass_pooled_conv.cuh"
#include "teaching/cutlass_pooled/cutlass_pooled_epilogue.cuh"

namespace convoy::cuda::teaching {

// A trap. CUTLASS has two tags whose names invite mixing them up, and takes either anywhere:
// OpClassTensorOp says which units multiply and chooses a specialisation; OpMultiplyAdd says what
// one instruction does and is what arch::Mma is specialised for. With the first in the place of the
// second nothing complains until, a dozen templates below, "incomplete type arch::Mma<GemmShape<16,
// 8, 16>, 32, half_t, ..., OpClassTensorOp> is not allowed" names neither.
using CutlassPooledUnits = cutlass::arch::OpClassTensorOp;
using CutlassPooledInstruction = cutlass::arch::OpMultiplyAdd;

template <class ThreadblockShape, class WarpShape, int Stages,
          class Instruction = CutlassPooledInstruction>
struct DefaultCutlassPooled {
  static_assert(!std::is_same_v<Instruction, CutlassPooledUnits>,
                "the instruction is OpMultiplyAdd; OpClassTensorOp is the class of units");
  using Default = cutlass::conv::kernel::DefaultConv2dFprop<
      cutlass::half_t, cutlass::layout::TensorNHWC,  // x
      cutlass::half_t, cutlass::layout::TensorNHWC,  // w, KRSC
      float, cutlass::layout::TensorNHWC,            // pooled
      float, CutlassPooledUnits, cutlass::arch::Sm80, ThreadblockShape, WarpShape,
      cutlass::gemm::GemmShape<16, 8, 16>, CutlassPooledOperator,
      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, Stages, Instruction,
      cutlass::conv::IteratorAlgorithm::kOptimized>;
  using Epilogue = CutlassPooledEpilogue<ThreadblockShape, typename Default::WarpMmaTensorOp,
                                         Default::kPartitionsK>;
  using Kernel =
      CutlassPooledConv<typename Default::Mma, typename Epilogue::Type, typename Epilogue::Output>;
};

}  // namespace convoy::cuda::teaching
