// What happens to images before the first layer, and to outputs behind the last.
#pragma once

#include <vector>

#include "convoy/network.hpp"
#include "core/threads.hpp"
#include "graph/graph.hpp"

namespace convoy::network {

/// x' of every pixel value and channel, [C][256], by PyTorch's own operations in fp32:
/// (u/255 - mean) / std.
std::vector<float> values_of_pixels(const graph::Normalise& by, Index channels);

/// How images become what the first layer reads.
class Conversion {
 public:
  /// Of images of this type, u8 or f32.
  Conversion(const graph::Normalise& by, DType type, Index channels);
  bool of_pixels() const { return pixels_; }
  const std::vector<float>& values() const { return values_; }  // [C][256]
  const std::vector<float>& mean() const { return mean_; }      // [C]
  const std::vector<float>& std() const { return std_; }        // [C]
  Index channels() const { return channels_; }

  /// `count` values of whole pixels, u8 or f32, to f32; on all threads.
  void run(Threads& threads, Index count, const void* from, float* to) const;

 private:
  Index channels_;
  bool pixels_;
  std::vector<float> values_, mean_, std_;
};

/// The mean over the steps of [steps][n][classes], summed in their order, in fp32, to mean
/// [n][classes]; with labels the index of each largest value, the first of equals. Either may be
/// null.
void mean_and_labels(Threads& threads, DType type, const void* outputs, Index steps, Index n,
                     Index classes, float* mean, std::int32_t* labels);

}  // namespace convoy::network
