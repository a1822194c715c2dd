// Operands between fences: memory around and between what a kernel may touch is poisoned, and
// looked at afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/tensor.hpp"
#include "core/buffer.hpp"
#include "core/gpu_timing.hpp"

namespace convoy::verify {

/// Dense: 64-byte aligned, no gaps. Strided: aligned to one element only, with unused channels
/// between pixels (NHWC) or unused elements between images (NCHW). Aligned: such gaps, but 16-byte
/// aligned wherever 16 bytes are a whole number of pixels' channels.
enum class Views : std::uint8_t { dense, strided, aligned };

/// All operands of one run in one block of the host's memory, a copy of it from before the run, and
/// on a GPU a copy there, which the run sees. Keeps the memory from run to run: allocating takes
/// longer than most runs on a GPU, and touching fresh pages than many on a CPU.
class Fences {
 public:
  /// With a stream of its own.
  explicit Fences(Device device);
  ~Fences();
  Device device() const { return device_; }
  Stream stream() const { return stream_.stream(); }

  /// Forgets the operands of the run before.
  void clear();
  /// Another operand; returns its number. Of an output `values` is null.
  std::size_t add(std::string_view name, DType dtype, const std::vector<Index>& shape,
                  Layout layout, Views views, const Tensor* values);
  /// After the last `add`: outputs and all between the operands are poison (NaN in every
  /// floating-point type, -1 in i32), inputs are in their places.
  void place();
  /// Where the run finds operand `i`, on the device.
  TensorView view(std::size_t i);
  /// After the run: waits for it and takes its outputs to the host.
  void fetch();
  /// The elements of operand `i` in the order [T,N,H,W,C], whatever the layout, as fp32 or i32
  /// numbers.
  std::vector<float> floats(std::size_t i) const;
  std::vector<std::int32_t> integers(std::size_t i) const;
  /// Empty, or what was changed besides the outputs' elements.
  std::string damage() const;

 private:
  class Operand;
  char* memory() const { return memory_.data(); }
  TensorView host() const;
  TensorView on_device();

  Device device_;
  gpu::OwnedStream stream_;
  std::vector<Operand> operands_;
  std::size_t bytes_ = 0;
  Buffer<char> memory_, before_;
  Tensor there_;  // empty on the CPU, where runs read and write the host's memory itself
};

}  // namespace convoy::verify
