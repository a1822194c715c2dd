#include "network/parameter_views.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/failure.hpp"
#include "core/printable.hpp"
#include "math/half.hpp"
#include "plan/operands.hpp"

namespace convoy::network {
namespace {

std::vector<float> values_of(const ConstTensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  std::array<Index, 5> at{};
  Index from = 0;
  for (float& value : values) {
    value = math::load(view.dtype, view.data, from);
    // On to the next element in C order.
    for (auto axis = static_cast<std::size_t>(view.rank); axis-- > 0;) {
      from += view.stride[axis];
      if (++at[axis] < view.shape[axis]) break;
      from -= view.stride[axis] * view.shape[axis];
      at[axis] = 0;
    }
  }
  return values;
}

bool is_number(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

}  // namespace

std::vector<float> numbers_of(const ConstTensorView& view, const std::string& name) {
  if (!view || !is_number(view.dtype))
    throw InvalidOperand(
        fmt::format("{}: found {}, expected f32, f16 or bf16", name, describe(view)));
  if (!(view.device == Device{}))
    throw InvalidOperand(fmt::format("{}: it is on {}, expected the host. Copy it there first.",
                                     name, to_text(view.device)));
  check_aligned(name, view).or_throw();
  check_reach(name, view);
  std::vector<float> values = values_of(view);
  io::expect_finite(values, name, StatusCode::invalid_operand);
  return values;
}

std::string ParameterViews::name_of(const std::string& parameter) const {
  return fmt::format("parameter \"{}\"", printable(parameter));
}

std::vector<float> ParameterViews::read(const std::string& parameter,
                                        const std::vector<Index>& shape,
                                        const std::string& meaning) {
  const std::string name = name_of(parameter),
                    expected = fmt::format("f32[{}] ({})", fmt::join(shape, ","), meaning);
  const auto found = views_.find(parameter);
  if (found == views_.end())
    throw InvalidOperand(
        fmt::format("{}: not given, expected {}. Add a view of that name.", name, expected));
  const ConstTensorView& view = found->second;
  const ConstTensorView dense(nullptr, DType::f32, shape);
  const bool fits = view.rank == dense.rank &&
                    std::equal(shape.begin(), shape.end(), view.shape.begin()),
             flat = view.rank == 1 && view.shape[0] == dense.elements();
  if (!view || !is_number(view.dtype) || !(fits || flat))
    throw InvalidOperand(
        fmt::format("{}: found {}, expected {}, or f16 or bf16, or flattened in that order.", name,
                    describe(view), expected));
  return numbers_of(view, name);
}

}  // namespace convoy::network
