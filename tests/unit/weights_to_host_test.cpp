// Weights in any order of memory; memory of the host stands for a GPU's.
#include "plan/weights_to_host.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "math/half.hpp"

namespace convoy {
namespace {

// A view of four axes with these strides over numbered memory, dense and element by element.
void expect_same(DType type, std::array<Index, 4> shape, std::array<Index, 4> stride) {
  Index low = 0, high = 0;
  for (std::size_t i = 0; i < 4; ++i) (stride[i] < 0 ? low : high) += (shape[i] - 1) * stride[i];
  std::vector<std::uint16_t> memory(static_cast<std::size_t>(high - low + 1) *
                                    (type == DType::f32 ? 2 : 1));
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint16_t>(i % 30011);
  auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
  const std::size_t element = type == DType::f32 ? 4 : 2;
  TensorView view(bytes + static_cast<std::size_t>(-low) * element, type,
                  {shape.begin(), shape.end()});
  for (std::size_t i = 0; i < 4; ++i) view.stride[i] = stride[i];
  std::size_t copies = 0, copied = 0;
  const Tensor dense = copy_to_host(view, [&](const void* from, void* to, std::size_t count) {
    const auto* const first = static_cast<const std::byte*>(from);
    ASSERT_GE(first, bytes);
    ASSERT_LE(first + count, bytes + memory.size() * 2);
    std::memcpy(to, from, count);
    ++copies, copied += count;
  });
  std::size_t at = 0;
  for (Index a = 0; a < shape[0]; ++a)
    for (Index b = 0; b < shape[1]; ++b)
      for (Index c = 0; c < shape[2]; ++c)
        for (Index d = 0; d < shape[3]; ++d, ++at) {
          const std::byte* const there =
              static_cast<const std::byte*>(view.data) +
              (a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]) *
                  static_cast<Index>(element);
          ASSERT_EQ(std::memcmp(dense.data<std::byte>() + at * element, there, element), 0)
              << to_text(type) << ", strides " << stride[0] << "," << stride[1] << "," << stride[2]
              << "," << stride[3] << ", element " << at;
        }
  EXPECT_LE(copied, 4 * dense.bytes() + 64);
}

TEST(WeightsToHost, TakesAnyStrides) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    expect_same(type, {8, 3, 3, 4}, {36, 12, 4, 1});       // [K,R,S,C]
    expect_same(type, {8, 3, 3, 64}, {576, 3, 1, 9});      // PyTorch's [K,C,R,S], permuted
    expect_same(type, {8, 3, 3, 4}, {1, 96, 32, 8});       // K innermost
    expect_same(type, {8, 3, 3, 4}, {72, -12, -4, 1});     // flipped, every second filter
    expect_same(type, {5, 1, 1, 7}, {70000, 0, 0, 9000});  // far apart
    expect_same(type, {4, 3, 3, 2}, {0, 3, 1, 9});         // one filter four times
    expect_same(type, {1, 1, 1, 1}, {1, 1, 1, 1});
  }
}

}  // namespace
}  // namespace convoy
