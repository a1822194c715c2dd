// Weight files, all three forms: whatever the bytes, the right number of finite values or an Error.
// The first byte chooses form and count, the rest is the file.
#include "io/weights.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "convoy/error.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

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
    } else if (form == 1) {
      const convoy::Tensor tensor = convoy::io::parse_npy(text, "input");
      if (tensor.elements() < 0 || tensor.bytes() > 8 * size) std::abort();
    } else {
      const auto values =
          convoy::io::SafeTensors({bytes.begin(), bytes.end()}, "input").values("w");
      if (values.size() > size) std::abort();
    }
  } catch (const convoy::Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}
