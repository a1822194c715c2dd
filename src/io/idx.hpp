// IDX files, plain or gzip: the format of MNIST and Fashion-MNIST.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convoy/stage.hpp"

namespace convoy::io {

/// u8 images, [n,h,w,c] dense.
struct Images {
  Index n = 0, h = 0, w = 0, c = 0;
  std::vector<std::uint8_t> data;
};

/// Reads u8 images: magic 0x00000803 with sizes N,H,W, or 0x00000804 with N,H,W,C, then exactly
/// N*H*W[*C] bytes; the whole may be one gzip member. Throws Error naming `name` and what is wrong;
/// allocates only after the sizes in the header agree with the size of the file.
Images parse_images(std::span<const unsigned char> bytes, const std::string& name);
Images read_images(const std::string& path);

/// Reads u8 labels: magic 0x00000801, N, then exactly N bytes; plain or gzip. Errors as above.
std::vector<std::uint8_t> parse_labels(std::span<const unsigned char> bytes,
                                       const std::string& name);
std::vector<std::uint8_t> read_labels(const std::string& path);

}  // namespace convoy::io
