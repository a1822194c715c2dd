// can_implement of `cutlass_pooled`: host arithmetic.
#include "teaching/cutlass_pooled/cutlass_pooled.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/size.hpp"
#include "cuda/refusals.hpp"

namespace convoy::cuda::teaching {

// CONVOY_NO_CUTLASS: what cmake/cutlass.cmake found instead, where it is defined.
std::string cutlass_pooled_missing() {
#if defined(CONVOY_NO_CUTLASS)
  return "built without CUTLASS (" CONVOY_NO_CUTLASS "). Run scripts/cutlass and configure again";
#else
  return {};
#endif
}

bool cutlass_pooled_fits(const Stage& stage, Index x_pixel) {
  constexpr Index most = cutlass_pooled_elements;
  const Shapes shapes = shapes_of(stage);
  // CUTLASS's iterators count elements of tensors in 32 bits, and those of an image with all that
  // its filter reaches outside of it too.
  const Index rows = stage.h + stage.pad.top + stage.pad.bottom + stage.dil.h * stage.r;
  const Index columns = stage.w + stage.pad.left + stage.pad.right + stage.dil.w * stage.s;
  return (Size(rows) * columns * x_pixel).fits(most) &&
         (Size(stage.n) * stage.h * stage.w * x_pixel).fits(most) &&
         (Size(stage.k) * stage.r * stage.s * stage.c).fits(most) &&
         (Size(stage.n) * shapes.p * shapes.q * stage.k).fits(most);
}

void refuse_cutlass_pooled(const Stage& stage, const DeviceFacts& device, Reasons& why) {
  const Shapes shapes = shapes_of(stage);
  const CutlassPooledTile& least = cutlass_pooled_tiles[0];
  Refusals(stage, why)
      .no(!cutlass_pooled_missing().empty(), cutlass_pooled_missing())
      .no(device.major < 8, fmt::format("compute capability {}.{}, the family needs 8.0 (cp.async)",
                                        device.major, device.minor))
      .channels_in_eights()
      .filters_in_eights()
      .no(shapes.p % 2 != 0, fmt::format("P = {} is odd: windows would cross images", shapes.p))
      .no(shapes.q % 2 != 0, fmt::format("Q = {} is odd: windows would cross rows", shapes.q))
      .no(std::max(stage.r, stage.s) > 32,
          fmt::format("a filter of {}x{}, its masks hold 32 rows and columns", stage.r, stage.s))
      .within(cutlass_pooled_limits)
      .no(!cutlass_pooled_fits(stage, stage.c), "more than 2^30 elements, or taps farther away")
      .no(device.shared_bytes < static_cast<std::size_t>(cutlass_pooled_shared_bytes(least)),
          fmt::format("{} bytes of shared memory, the smallest tile needs {}", device.shared_bytes,
                      cutlass_pooled_shared_bytes(least)));
}

std::size_t cutlass_pooled_bytes(const Stage& stage) {
  return static_cast<std::size_t>(shapes_of(stage).y_elements) * sizeof(float);
}

}  // namespace convoy::cuda::teaching
