#include "plan/weights_to_host.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
#include "core/gpu.hpp"

namespace convoy {
namespace {

struct Axis {
  Index size, from, to;  // and the strides, in elements
};

class Fetch {
 public:
  Fetch(std::size_t element,
        const std::function<void(const void* from, void* to, std::size_t bytes)>& copy)
      : element_(element), copy_(copy) {}

  /// One copy of all that lies between the first element and the last, unless most of that is not
  /// the view's: then the longest stride's parts by themselves.
  void run(const std::byte* from, std::byte* to, std::vector<Axis> axes) {
    Index elements = 1, before = 0, behind = 0;
    for (const Axis& axis : axes) {
      elements *= axis.size;
      (axis.from < 0 ? before : behind) += std::abs(axis.from) * (axis.size - 1);
    }
    const Index span = before + behind + 1;
    if (span <= 4 * elements) {
      memory_.resize(bytes(span));
      copy_(from - bytes(before), memory_.data(), bytes(span));
      sort_in(memory_.data() + bytes(before), to, axes);
      return;
    }
    const auto longest =
        std::max_element(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
          return (a.size > 1 ? std::abs(a.from) : 0) < (b.size > 1 ? std::abs(b.from) : 0);
        });
    const Axis cut = *longest;
    axes.erase(longest);
    for (Index i = 0; i < cut.size; ++i) run(at(from, i * cut.from), to + bytes(i * cut.to), axes);
  }

 private:
  std::size_t bytes(Index elements) const { return static_cast<std::size_t>(elements) * element_; }
  const std::byte* at(const std::byte* first, Index elements) const {
    return first + elements * static_cast<std::ptrdiff_t>(element_);
  }
  void sort_in(const std::byte* from, std::byte* to, std::span<const Axis> axes) {
    if (axes.empty()) {
      std::memcpy(to, from, element_);
      return;
    }
    for (Index i = 0; i < axes.front().size; ++i)
      sort_in(at(from, i * axes.front().from), to + bytes(i * axes.front().to), axes.subspan(1));
  }

  std::size_t element_;
  const std::function<void(const void* from, void* to, std::size_t bytes)>& copy_;
  std::vector<std::byte> memory_;
};

}  // namespace

Tensor copy_to_host(
    const ConstTensorView& view,
    const std::function<void(const void* from, void* to, std::size_t bytes)>& copy) {
  Tensor dense(view.dtype, {view.shape.begin(), view.shape.begin() + view.rank});
  if (dense.elements() == 0) return dense;
  std::vector<Axis> axes;
  axes.reserve(static_cast<std::size_t>(view.rank));
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.rank); ++i)
    axes.push_back({view.shape[i], view.stride[i], dense.view().stride[i]});
  Fetch(size_of(view.dtype), copy)
      .run(static_cast<const std::byte*>(view.data), dense.data<std::byte>(), std::move(axes));
  return dense;
}

Tensor copy_to_host(const ConstTensorView& view, Stream stream) {
  return copy_to_host(view, [&](const void* from, void* to, std::size_t bytes) {
    gpu::copy({.from = from,
               .to = to,
               .from_device = view.device,
               .to_device = Device{},
               .row_bytes = bytes},
              stream);
  });
}

}  // namespace convoy
