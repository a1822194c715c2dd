// Weight files: text (a number each, as numpy.savetxt writes a flattened array), .npy,
// .safetensors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/error.hpp"
#include "convoy/stage.hpp"
#include "io/safetensors.hpp"

namespace convoy::io {

/// Parses exactly `count` finite numbers separated by white space. Throws Error that begins with
/// `name` and says how many there are, where the first bad one is, and what was expected;
/// `meaning` explains the count ("k16 r5 s5 c8"). Stores nothing beyond `count` values.
std::vector<float> parse_weights(std::string_view text, const std::string& name, Index count,
                                 const std::string& meaning);

/// Throws Error of this code that begins with `name` if a value is infinite or NaN.
void expect_finite(const std::vector<float>& values, const std::string& name, StatusCode code);

/// Where the parameters of a network come from.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  /// The parameter of that name ("conv1.weight"), flattened in C order: exactly as many finite
  /// values as its shape in PyTorch says; `meaning` explains it ("k16 r5 s5 c8"). Throws Error that
  /// says what was found.
  virtual std::vector<float> read(const std::string& parameter, const std::vector<Index>& shape,
                                  const std::string& meaning) = 0;
  virtual bool has(const std::string& parameter) = 0;
  /// What messages call it.
  virtual std::string name_of(const std::string& parameter) const = 0;
};

/// Where a model's parameters lie. Each file is opened once, model.safetensors with the first
/// parameter, and read no more after that.
class ParameterFolder : public ParameterSource {
 public:
  explicit ParameterFolder(std::string folder) : folder_(std::move(folder)) {}

  /// From the file conv1.weight.txt, conv1.weight.npy or the entry in model.safetensors. A file has
  /// the parameter's name as core/file_name.hpp writes it, the entry has it as it is. The shape
  /// that the latter two tell must be `shape`, flattened or without its axes of 1. Throws Error
  /// also where it is in more than one of them, and where one is a folder, a pipe, a broken link
  /// or unreadable: nobody can tell which of two is meant.
  std::vector<float> read(const std::string& parameter, const std::vector<Index>& shape,
                          const std::string& meaning) override;

  /// Whether something of one of these names is there; model.safetensors counts if it holds the
  /// entry.
  bool has(const std::string& parameter) override;
  std::string name_of(const std::string& parameter) const override;

  /// The path of the parameter's files without their endings.
  std::string path_of(const std::string& parameter) const;

 private:
  struct Place {  // which of the three has it; at most one
    bool text, npy;
    const SafeTensors* tensors;
  };
  Place place_of(const std::string& parameter);
  /// The folder's model.safetensors, if the parameter is in it; else null.
  const SafeTensors* safetensors_with(const std::string& parameter);

  std::string folder_;
  std::optional<SafeTensors> tensors_;
};

}  // namespace convoy::io
