#include "convoy/pinned.hpp"

#include <fmt/core.h>

#include "core/failure.hpp"
#include "core/gpu_async.hpp"
#include "core/size.hpp"

namespace convoy {

void PinnedTensor::Free::operator()(void* memory) const noexcept {
  gpu::release_pinned(memory);
}

PinnedTensor::PinnedTensor(DType dtype, const std::vector<Index>& shape, Device with) {
  if (with.kind != DeviceKind::cuda) {
    ordinary_ = Tensor(dtype, shape, with);
    view_ = ordinary_;
    return;
  }
  view_ = TensorView(nullptr, dtype, shape);
  const Size bytes = Size(view_.elements()) * static_cast<Index>(size_of(dtype));
  if (!bytes.fits())
    throw InvalidOperand(
        "a page-locked tensor of more than 2^60 bytes, expected fewer. Use a smaller n.");
  pinned_.reset(gpu::allocate_pinned(
      with, static_cast<std::size_t>(bytes.value()),
      fmt::format("a tensor of {} {} values", view_.elements(), to_text(dtype))));
  view_.data = pinned_.get();
}

}  // namespace convoy
