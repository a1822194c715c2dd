// The .safetensors format: a JSON header with types, shapes and places, then the numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::io {

/// An open file, its header read. The values of a tensor are read when they are asked for, straight
/// to where they go, so that reading all of them reads the file once and holds no second copy.
class SafeTensors {
 public:
  /// Every bound is checked before anything is allocated. Throws Error: damaged file, a key twice,
  /// tensors that overlap or leave bytes out; no file that may be read, as InputFile.
  explicit SafeTensors(const std::string& path);
  /// Of bytes in memory. `name` is the file's, for messages.
  SafeTensors(std::vector<unsigned char> bytes, std::string name);

  bool contains(const std::string& tensor) const { return tensors_.count(tensor) > 0; }
  /// The shape of one tensor, as the header says; sizes beyond an Index are its largest number.
  /// Throws Error: no such tensor.
  std::vector<Index> shape(const std::string& tensor) const;
  /// The values of one tensor, F32, F16 or BF16, flattened, as fp32. Throws Error: no such tensor,
  /// another type, a shape that is not its place's, a file that has become shorter.
  std::vector<float> values(const std::string& tensor) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes of the body
  };
  struct Source {
    std::uint64_t size = 0;
    std::function<void(std::uint64_t at, std::span<unsigned char> to)> read;
  };
  static Source source_of(const std::string& path);
  static Source source_of(std::vector<unsigned char> bytes);
  SafeTensors(Source source, std::string name);
  void check_places() const;
  const Entry& entry_of(const std::string& tensor) const;

  Source source_;
  std::string name_;
  std::uint64_t body_ = 0, body_size_ = 0;  // where the numbers begin, and their bytes
  std::map<std::string, Entry> tensors_;
};

}  // namespace convoy::io
