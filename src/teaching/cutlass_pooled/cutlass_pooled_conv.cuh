// `cutlass_pooled`, step 4: the kernel, an implicit GEMM of CUTLASS whose parameters say where the
// pooled values go. A CTA computes a tile of the matrix [N * P * Q, K] with all of its depth: no
// split-K, so that nothing but the maximum is shared between CTAs.
#pragma once

#include <cutlass/conv/conv2d_problem_size.h>
#include <cutlass/conv/convolution.h>
#include <cutlass/cutlass.h>
#include <cutlass/matrix_coord.h>

namespace convoy::cuda::teaching {

template <class Mma, class Epilogue, class Output>
struct CutlassPooledConv {
  using IteratorA = typename Mma::IteratorA;
  using IteratorB = typename Mma::IteratorB;
  using OutputOperator = typename Epilogue::OutputOp;
  static constexpr int threads = 32 * Mma::WarpCount::kCount;

  struct Params {
    cutlass::conv::Conv2dProblemSize problem;
    typename IteratorA::Params x_walk;
    typename IteratorB::Params w_walk;
    const cutlass::half_t *x, *w;
    typename Output::Params output;
    int k_tiles;  // CTAs with the same rows and other filters; they have neighbouring numbers
    int depth_tiles, depth_tiles_a_chunk;  // of the main loop: all, and of 32 channels

    /// x [N, H, W, C] with pixels of its layout, w [K, R, S, C] dense.
    Params(const cutlass::conv::Conv2dProblemSize& size,
           const cutlass::layout::TensorNHWC& x_layout, const cutlass::layout::TensorNHWC& w_layout)
        : problem(size), x_walk(IteratorA::getParams(size, x_layout)), w_walk(size, w_layout) {
      constexpr auto fprop = cutlass::conv::Operator::kFprop;
      output.rows = size.N * size.P * size.Q;
      output.columns = size.K;
      output.pooled_q = size.Q / 2;
      output.by_q = cutlass::FastDivmod(size.Q);
      k_tiles = (size.K + Mma::Shape::kN - 1) / Mma::Shape::kN;
      depth_tiles = cutlass::conv::implicit_gemm_k_iterations(fprop, Mma::Shape::kK, size,
                                                              IteratorA::kIteratorAlgorithm);
      depth_tiles_a_chunk = cutlass::conv::implicit_gemm_k_iterations_per_channel(
          fprop, size, IteratorA::kIteratorAlgorithm);
    }
    int ctas() const { return (output.rows + Mma::Shape::kM - 1) / Mma::Shape::kM * k_tiles; }
  };

  union SharedStorage {
    typename Mma::SharedStorage main_loop;
    typename Epilogue::SharedStorage epilogue;
  };

  __device__ static void run(const Params& params, SharedStorage& shared) {
    const int m_tile = blockIdx.x / params.k_tiles;
    const int first_row = m_tile * Mma::Shape::kM;
    const int first_k = (blockIdx.x - m_tile * params.k_tiles) * Mma::Shape::kN;
    const int thread = threadIdx.x, lane = thread % 32;
    const int warp = cutlass::canonical_warp_idx_sync();  // the compiler sees it is a warp's

    IteratorA x(params.x_walk, params.problem, params.x, thread, {first_row, 0});
    IteratorB w(params.w_walk, params.problem, params.w, thread, {0, first_k});
    typename Mma::FragmentC sums;
    sums.clear();
    Mma mma(shared.main_loop, thread, warp, lane);
    mma(params.depth_tiles, sums, x, w, sums, params.depth_tiles_a_chunk);

    const Output output(params.output, {first_row, first_k}, thread);
    Epilogue epilogue(shared.epilogue, thread, warp, lane);
    epilogue(OutputOperator({}), output, sums, output);
  }
};

}  // namespace convoy::cuda::teaching
