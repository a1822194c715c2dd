// Kernel `spike_resident`: sums of products, by one warp.
#pragma once

#include <cstdint>

#include "cuda/sm80/spike_resident_net.cuh"

namespace convoy::cuda::sm80 {

/// How many of `all` there are from `from` on, at most `Most` at a time: of a known network that
/// divides them evenly the compiler knows that it is all of them.
template <class Net, int Most>
CONVOY_LANE int there_are(int all, int from) {
  return Net::known && all % Most == 0 ? Most : all - from;
}

/// Terms of a layer's weights.
template <class Net>
CONVOY_LANE int terms(const ResidentScale& of) {
  return Net::terms != 0 ? Net::terms : of.terms;
}

/// Weights of a product as a lane holds them: hi and lo of unit 0 and 1.
struct alignas(16) WeightWords {
  std::uint32_t hi[2], lo[2];
};

/// Machine code for 8.x, whose compiler would spill in the loops over tasks: see number_of and
/// sums.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool code_for_8x = true;
#else
inline constexpr bool code_for_8x = false;
#endif

/// The lane's number. What follows from it is made anew in each task of 8.x: the compiler can't
/// know that it is the same, else it keeps it from task to task, in local memory.
template <class Lane>
CONVOY_LANE int number_of(const Lane& lane) {
  int number = lane.lane;
  if constexpr (code_for_8x) asm volatile("" : "+r"(number));
  return number;
}

/// Where the row begins that this lane gives of a product, from the row's address.
template <class Net, class Lane>
CONVOY_LANE int product_offset(const Lane& lane, const ResidentLayer& l, int unit, int product) {
  if constexpr (Net::known) {
    const int first = l.offset(2 * product), second = l.offset(2 * product + 1);
    return first + unit * (second - first);
  } else {
    const auto* const offsets = reinterpret_cast<const std::int32_t*>(lane.shared + l.offsets);
    return offsets[2 * product + unit];
  }
}

/// The products of a column of taps, rows in pairs, of tiles that follow each other down the image:
/// what tile i reads for a pair is what tile i + 1 reads for the one before.
template <int Terms, int Tiles, int Columns, int Steps, class Lane, class Weights>
CONVOY_LANE void column_sums(const Lane& lane, const ResidentLayer& l, int row, int first,
                             Weights weights, float (&acc)[Tiles][Columns][Steps][4]) {
  WeightWords w[most_known_pairs][Columns];
  CONVOY_UNROLL
  for (int pair = 0; pair < most_known_pairs; ++pair) CONVOY_UNROLL
  for (int j = 0; j < Columns; ++j)
    if (pair < l.pairs()) w[pair][j] = weights(first + pair, j);
  CONVOY_UNROLL
  for (int at = 0; at < Tiles + most_known_pairs - 1; ++at) {
    if (at >= Tiles + l.pairs() - 1) continue;
    std::uint32_t x[Steps][4];
    CONVOY_UNROLL
    for (int t = 0; t < Steps; ++t) lane.matrix(x[t], row + t * l.in_step + at * 2 * l.tap_row);
    CONVOY_UNROLL
    for (int term = 0; term < Terms; ++term) CONVOY_UNROLL
    for (int t = 0; t < Steps; ++t) CONVOY_UNROLL
    for (int pair = 0; pair < most_known_pairs; ++pair) CONVOY_UNROLL
    for (int j = 0; j < Columns; ++j) {
      const int i = at - pair;
      if (pair < l.pairs() && i >= 0 && i < Tiles)
        lane.multiply_add(acc[i][j][t], x[t], term == 0 ? w[pair][j].hi : w[pair][j].lo);
    }
  }
}

/// Sums of `Tiles` times 16 rows by `Columns` times 8 filters in each of `Steps` steps, of which
/// there are so many tiles and steps. rows: where in shared memory the row begins that this lane
/// gives of each tile. weights(product, column): this lane's, of so many terms; those of `Ahead`
/// products are on their way.
template <class Net, int Tiles, int Columns, int Steps, int Ahead, class Lane, class Weights>
CONVOY_LANE void sums(const Lane& lane, const ResidentLayer& l, const int (&rows)[Tiles], int tiles,
                      int steps, int terms, Weights weights,
                      float (&acc)[Tiles][Columns][Steps][4]) {
  CONVOY_UNROLL
  for (int i = 0; i < Tiles; ++i) CONVOY_UNROLL
  for (int j = 0; j < Columns; ++j) CONVOY_UNROLL
  for (int t = 0; t < Steps; ++t) CONVOY_UNROLL
  for (int e = 0; e < 4; ++e) acc[i][j][t][e] = 0;
  const int unit = address_unit(number_of(lane));
  int from = 0;
  if constexpr (Net::known && Tiles > 1)
    if (tiles_are_rows(l)) {
      CONVOY_UNROLL_KNOWN
      for (; from < l.paired_products(); from += l.pairs())
        column_sums<Net::terms>(lane, l, rows[0] + product_offset<Net>(lane, l, unit, from), from,
                                weights, acc);
    }
  const auto load = [&](int product, WeightWords(&w)[Columns]) {
    CONVOY_UNROLL
    for (int j = 0; j < Columns; ++j) w[j] = weights(product, j);
  };
  WeightWords next[Ahead][Columns];
  // Of a layer whose number of products is data they would have no first value: the compiler has
  // such registers live from the kernel's beginning on, and spills them.
  if constexpr (code_for_8x) {
    CONVOY_UNROLL
    for (int d = 0; d < Ahead; ++d) CONVOY_UNROLL
    for (int j = 0; j < Columns; ++j) next[d][j] = {};
  }
  CONVOY_UNROLL
  for (int d = 0; d < Ahead; ++d)
    if (from + d < l.products) load(from + d, next[d]);
  CONVOY_UNROLL_KNOWN
  for (int begin = from; begin < l.products; begin += Ahead) CONVOY_UNROLL
  for (int d = 0; d < Ahead; ++d) {
    const int product = begin + d;
    if (product >= l.products) continue;
    WeightWords w[Columns];
    CONVOY_UNROLL
    for (int j = 0; j < Columns; ++j) w[j] = next[d][j];
    if (product + Ahead < l.products) load(product + Ahead, next[d]);
    const bool single = Net::known && l.odd() && product + 1 == l.products;
    const int offset = product_offset<Net>(lane, l, unit, product);
    CONVOY_UNROLL
    for (int t = 0; t < Steps; ++t) {
      if (t >= steps) continue;
      std::uint32_t x[Tiles][4];
      CONVOY_UNROLL
      for (int i = 0; i < Tiles; ++i)
        lane.matrix(x[i], rows[i] + t * l.in_step + offset);  // an absent tile's too
      CONVOY_UNROLL
      for (int term = 0; term < 2; ++term) CONVOY_UNROLL
      for (int i = 0; i < Tiles; ++i) CONVOY_UNROLL
      for (int j = 0; j < Columns; ++j) {
        if (i >= tiles || term >= terms) continue;
        const auto& of_term = term == 0 ? w[j].hi : w[j].lo;
        if (single)
          lane.multiply_add_half(acc[i][j][t], x[i], of_term[0]);
        else
          lane.multiply_add(acc[i][j][t], x[i], of_term);
      }
    }
  }
}

}  // namespace convoy::cuda::sm80
