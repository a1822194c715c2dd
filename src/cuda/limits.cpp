#include "cuda/limits.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace convoy::cuda {
namespace {

std::string in_words(Index number) {
  const auto bits = static_cast<std::uint64_t>(number);
  if (number >= 1 << 15 && std::has_single_bit(bits))
    return fmt::format("2^{}", std::countr_zero(bits));
  if (number >= (1 << 15) - 1 && std::has_single_bit(bits + 1))
    return fmt::format("2^{} - 1", std::countr_zero(bits + 1));
  return fmt::format("{}", number);
}

}  // namespace

std::vector<std::string> beyond(const Stage& stage, const Limits& limits) {
  std::vector<std::string> why;
  const auto check = [&](const char* what, const Size& size, Index limit) {
    if (size.fits(limit)) return;
    const std::string found =
        size.fits() ? fmt::format("{}", size.value()) : std::string("more than 2^60");
    why.push_back(fmt::format("{} {}, at most {} fit", what, found, in_words(limit)));
  };
  const Shapes shapes = shapes_of(stage);
  const Size rows = Size(stage.n) * shapes.p * shapes.q;
  check("N =", stage.n, limits.extent);
  check("C =", stage.c, limits.channels);
  check("K =", stage.k, limits.extent);
  check("H, padded, and the filter's rows =",
        Size(stage.h) + stage.pad.top + stage.pad.bottom + Size(stage.dil.h) * stage.r,
        limits.extent);
  check("W, padded, and the filter's columns =",
        Size(stage.w) + stage.pad.left + stage.pad.right + Size(stage.dil.w) * stage.s,
        limits.extent);
  check("elements of x =", shapes.x_elements, limits.elements);
  check("elements of w =", shapes.w_elements, limits.elements);
  check("elements of the convolution's output =", shapes.pre_elements, limits.elements);
  check("elements of y =", shapes.y_elements, limits.elements);
  const bool neuron = stage.act.is_neuron();
  check("images of all steps =", Size(stage.n) * (neuron && !stage.hold ? stage.t : 1),
        limits.inputs);
  if (neuron) check("membranes =", rows * stage.k, limits.membranes);
  check("output pixels before the pool, N*P*Q =", rows, limits.rows);
  const Size tiles = (rows + (limits.tile_rows - 1)) *
                     (stage.k / limits.tile_filters +
                      (stage.groups > 1 || stage.k % limits.tile_filters != 0 ? stage.groups : 0));
  if (!tiles.fits(limits.tiles)) why.emplace_back(too_many_tiles);
  check("products of an output, R*S*C =", Size(stage.r) * stage.s * stage.c, limits.products);
  check("elements of a padded row of x =",
        (Size(stage.w) + stage.pad.left + stage.pad.right) * stage.c, limits.row_elements);
  check("pixels that the filter reaches over =",
        std::max(Size(stage.r - 1) * stage.dil.h, Size(stage.s - 1) * stage.dil.w), limits.reach);
  check("pixels that the stride leads over =",
        std::max(Size(shapes.p) * stage.stride.h, Size(shapes.q) * stage.stride.w), limits.strides);
  return why;
}

bool countable(std::initializer_list<Index> divided, Index rest) {
  constexpr Index limit = Index{1} << 32;
  Size all = rest;
  for (const Index tiles : divided) all *= tiles;
  if (!all.fits(limit / 2 - last_step - 1)) return false;
  // The largest number that is divided by an axis's tiles, of which the product is below 2^32.
  Index number = all.value() + last_step;
  for (const Index tiles : divided) {
    if (number > (limit - 1) / tiles) return false;
    number /= tiles;
  }
  return true;
}

}  // namespace convoy::cuda
