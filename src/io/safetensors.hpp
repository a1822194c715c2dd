// The .safetensors format: a JSON header with types, shapes and places, then the numbers.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace convoy::io {

/// A whole file, its header read once.
class SafeTensors {
 public:
  /// `name` is the file's, for messages. Every bound is checked before anything is allocated.
  /// Throws Error: damaged file, a key twice, tensors that overlap or leave bytes out.
  SafeTensors(std::vector<unsigned char> bytes, std::string name);

  bool contains(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// The values of one tensor, F32, F16 or BF16, flattened, as fp32. Throws Error: no such tensor,
  /// another type, a shape that is not its place's.
  std::vector<float> values(const std::string& tensor) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes of the body
  };
  void check_places() const;

  std::vector<unsigned char> bytes_;
  std::string name_;
  std::span<const unsigned char> body_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace convoy::io
