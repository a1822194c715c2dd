#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/copy_past_caches.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target: from here on this file is compiled once for each instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "network/copy_past_caches.hpp"

HWY_BEFORE_NAMESPACE();
namespace convoy::network::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A line in one store where vectors are as long: it is then on its way at once.
void copy(const std::uint8_t* from, std::size_t bytes, std::uint8_t* to) {
  constexpr std::size_t line = 64, ahead = 4096;  // the hardware's prefetching ends with the page
  const hn::CappedTag<std::uint8_t, line> d;
  const std::size_t head =
      std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + line <= bytes; i += line) {
    __builtin_prefetch(from + i + ahead);
    for (std::size_t j = 0; j < line; j += hn::Lanes(d))
      hn::Stream(hn::LoadU(d, from + i + j), d, to + i + j);
  }
  std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace convoy::network::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convoy::network {

HWY_EXPORT(copy);

void copy_past_caches(const void* from, std::size_t bytes, void* to) {
  HWY_DYNAMIC_DISPATCH(copy)
  (static_cast<const std::uint8_t*>(from), bytes, static_cast<std::uint8_t*>(to));
}

void end_copies_past_caches() {
  hwy::FlushStream();
}

}  // namespace convoy::network
#endif
