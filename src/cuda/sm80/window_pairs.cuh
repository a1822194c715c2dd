// Sums of window's tiles that take two steps between barriers. A CTA that has a multiprocessor to
// itself has no other's products to hide what it waits for: so more bytes are under way, half as
// many barriers stand in the way, and reads and copies stand between products, without a branch.
#pragma once

#include "cuda/sm80/window.cuh"

namespace convoy::cuda::sm80 {

/// As window_sums, with the same bits. Slots are filled two by two; a last step that is alone is
/// followed by one of zeros.
template <class T, class Shape, template <int> class Pixels>
__device__ __forceinline__ void window_sums_in_pairs(const WindowParams& p, const WindowCta& cta,
                                                     const WindowGeometry& g, const WindowTap* taps,
                                                     std::uint32_t shared,
                                                     Sum<T> (&sums)[Shape::ms][Shape::ns][4]) {
  constexpr int slots = Shape::slots, slot_bytes = Shape::slot_bytes, ahead = slots - 2;
  const int steps = p.at.steps;
  WindowLoads<T, Shape, Pixels> loads(p, cta, g, taps, shared);
  const auto weights = [&](int step) {
#pragma unroll
    for (int i = 0; i < Shape::copies_n; ++i) loads.weight(i, step * slot_bytes);
    loads.end_weights(step + 1 < steps);
  };
  const auto pixels = [&](int step) {
#pragma unroll
    for (int i = 0; i < Shape::copies_m; ++i) loads.pixel(i, step * slot_bytes);
    loads.end_pixels();
  };
  for (int step = 0; step < ahead; ++step) weights(step);
  ptx::grid_dependency_wait();
  for (int step = 0; step < ahead; step += 2) {
    pixels(step);
    pixels(step + 1);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<ahead / 2 - 1>();
  __syncthreads();

  const WindowReads<Shape> reads(shared);
  std::uint32_t a[2][Shape::ms][4], b[2][Shape::ns / 2][4];
  reads.read(0, 0, a[0], b[0]);
  const auto product = [&](int number, const auto& of_a, const auto& of_b) {
    // The operand that changes less often is read less often: rows, filters there and back, or
    // filters, which is faster where a scheduler has one warp.
    constexpr bool by_rows = Shape::threads > 128;
    const int row = number / Shape::ns, filter = number % Shape::ns;
    const int back = row % 2 == 0 ? filter : Shape::ns - 1 - filter;
    const int i = by_rows ? row : number % Shape::ms, j = by_rows ? back : number / Shape::ms;
    Product<T>::add(sums[i][j], of_a[i], of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]);
  };
  // A part's products, and between them the reads of the next part's operands and a step's copies.
  // Copies stand together: before one that follows something else ptxas puts three empty reads of
  // shared memory, which cost as much as others. In the middle of a part's halves, unless there are
  // many of pixels, is where they cost least.
  constexpr int groups = Shape::ns;
  constexpr int first_copies = Shape::copies_m > Shape::copies_n ? 0 : groups / 4;
  const auto multiply = [&](const auto& of_a, const auto& of_b, auto& to_a, auto& to_b,
                            std::uint32_t from, int part, const auto& copies) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
#pragma unroll
      for (int i = group * reads.count / groups; i < (group + 1) * reads.count / groups; ++i)
        reads.read_one(i, from, part, to_a, to_b);
#pragma unroll
      for (int i = 0; i < Shape::ms; ++i) product(group * Shape::ms + i, of_a, of_b);
      copies(group);
    }
  };
  const auto none = [](int) {};
  std::uint32_t slot = 0, to_fill = ahead * slot_bytes;
  for (int step = 0; step < steps; step += 2) {
    const auto copies_of = [&](int of_two) {
      return [&, of_two](int group) {
        const std::uint32_t to = to_fill + of_two * slot_bytes;
        if (group == first_copies) {
#pragma unroll
          for (int i = 0; i < Shape::copies_n; ++i) loads.weight(i, to);
          loads.end_weights(step + ahead + of_two + 1 < steps);
        } else if (group == first_copies + groups / 2) {
#pragma unroll
          for (int i = 0; i < Shape::copies_m; ++i) loads.pixel(i, to);
          loads.end_pixels();
        }
      };
    };
    // The slots that were read last, and every warp has passed a barrier since.
    multiply(a[0], b[0], a[1], b[1], slot, 1, copies_of(0));
    multiply(a[1], b[1], a[0], b[0], slot + slot_bytes, 0, copies_of(1));
    ptx::cp_async_commit();
    multiply(a[0], b[0], a[1], b[1], slot + slot_bytes, 1, none);
    ptx::cp_async_wait<ahead / 2 - 1>();
    __syncthreads();
    to_fill = slot;
    slot = slot == ahead * slot_bytes ? 0 : slot + 2 * slot_bytes;
    multiply(a[1], b[1], a[0], b[0], slot, 0, none);
  }
  ptx::cp_async_wait<0>();
  __syncthreads();
}

}  // namespace convoy::cuda::sm80
