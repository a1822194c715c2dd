// Weight files, all three forms: whatever the bytes, the right number of finite values or an Error.
// The first byte chooses form and count, the rest is the file.
#include "io/weights.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "convoy/error.hpp"
#include "convoy/plan.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace {

// As weights of a layer that has so many: two kernels must agree on what they give.
void use(const std::vector<float>& values) {
  using namespace convoy;
  const auto count = static_cast<Index>(values.size());
  if (count != 4 && count != 7) return;
  const Stage stage = parse_stage(count == 4 ? "n1h3c2k2r1" : "n1h5c1k1r1s7pad0x3+relu+max2");
  std::vector<float> x(static_cast<std::size_t>(shapes_of(stage).x_elements), 1.0F), y[2];
  for (const char* kernel : {"general", "direct"}) {
    PlanOptions options;
    options.threads = 1;
    options.use_tuning = false;
    options.kernel = kernel;
    const Plan plan(stage, ConstTensorView::of(values.data(), {stage.k, stage.r, stage.s, stage.c}),
                    options);
    std::vector<float>& out = y[*kernel == 'd'];
    out.resize(static_cast<std::size_t>(shapes_of(stage).y_elements));
    Operands operands;
    operands.x = TensorView::of(x.data(), {1, stage.h, stage.w, stage.c});
    operands.y = TensorView(out.data(), DType::f32, y_shape(stage));
    plan.run(operands).or_throw();
  }
  if (std::memcmp(y[0].data(), y[1].data(), y[0].size() * sizeof(float)) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int form = data[0] % 3;
  const convoy::Index count = data[0] / 3 % 8;
  const std::span<const unsigned char> bytes(data + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    if (form == 0) {
      const auto values = convoy::io::parse_weights(text, "input", count, "k2 c2");
      if (static_cast<convoy::Index>(values.size()) != count) std::abort();
      for (const float value : values)
        if (!std::isfinite(value)) std::abort();
      use(values);
    } else if (form == 1) {
      const convoy::Tensor tensor = convoy::io::parse_npy(text, "input");
      if (tensor.elements() < 0 || tensor.bytes() > 8 * size) std::abort();
      if (tensor.view().dtype == convoy::DType::f32)
        use({tensor.data<float>(), tensor.data<float>() + tensor.elements()});
    } else {
      const auto values =
          convoy::io::SafeTensors({bytes.begin(), bytes.end()}, "input").values("w");
      if (values.size() > size) std::abort();
      use(values);
    }
  } catch (const convoy::Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}
