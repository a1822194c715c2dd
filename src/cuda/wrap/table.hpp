// Rows that a kernel reads from device memory, from rows on the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/gpu.hpp"

namespace convoy::cuda {

/// Throws Error if there is no memory.
template <class Row>
gpu::Table table_of(Device device, const std::vector<Row>& rows, int ctas) {
  static_assert(std::is_trivially_copyable_v<Row>);
  const std::size_t bytes = rows.size() * sizeof(Row);
  if (bytes == 0) return {};
  Tensor host(DType::u8, {static_cast<Index>(bytes)});
  std::memcpy(host.data<std::uint8_t>(), rows.data(), bytes);
  return {host.to(device), static_cast<Index>(rows.size()), ctas};
}

}  // namespace convoy::cuda
