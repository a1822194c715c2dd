// Parameters that lie in the caller's memory.
#pragma once

#include "convoy/network.hpp"
#include "io/weights.hpp"

namespace convoy::network {

/// The numbers of an f32, f16 or bf16 view on the host, in C order. Throws Error that begins with
/// `name`, also where one is not finite.
std::vector<float> numbers_of(const ConstTensorView& view, const std::string& name);

/// Reads f32, f16 and bf16 views on the host, of PyTorch's shape with any strides, or flattened.
class ParameterViews : public io::ParameterSource {
 public:
  explicit ParameterViews(const NetworkParameters& views) : views_(views) {}
  std::vector<float> read(const std::string& parameter, const std::vector<Index>& shape,
                          const std::string& meaning) override;
  bool has(const std::string& parameter) override { return views_.contains(parameter); }
  std::string name_of(const std::string& parameter) const override;

 private:
  const NetworkParameters& views_;
};

}  // namespace convoy::network
