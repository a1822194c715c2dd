// What is true of a type, once for the host: its name, its size, where a stage may have it. How its
// values are read and rounded is in math/half.hpp. Every kernel accumulates in fp32, whatever the
// type.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "convoy/stage.hpp"

namespace convoy {

struct TypeFacts {
  std::string_view name = "?";
  std::size_t bytes = 4;
  bool known = false;   // false: a number that is no type
  bool input = false;   // of a stage
  bool output = false;  // of a stage
  /// Of a stage's weights in memory, and whether a GPU multiplies the stage on tensor cores.
  DType weights = DType::f32;
  bool tensor_cores = false;
  /// What a tensor core's instruction sums of this type in one step: 32 bytes; 0: it takes none.
  int step_channels = 0;
};

constexpr TypeFacts facts_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {"f32", 4, true, true, true};
    case DType::f16:
      return {"f16", 2, true, true, true, DType::f16, true, 16};
    case DType::bf16:
      return {"bf16", 2, true, true, true, DType::bf16, true, 16};
    case DType::u8:
      return {"u8", 1, true, true, false, DType::f32, true};
    case DType::i32:
      return {"i32", 4, true, false, false};
  }
  return {};
}

inline constexpr std::array all_types{DType::f32, DType::f16, DType::bf16, DType::u8, DType::i32};

}  // namespace convoy
