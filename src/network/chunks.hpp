// How a run of many images is cut for its way from the host to a GPU and back.
#pragma once

#include <algorithm>

#include "convoy/stage.hpp"

namespace convoy::network {

/// n images in chunks of `size`, the last one smaller.
struct Chunks {
  Index n = 0, size = 1, count = 0;

  Index begin(Index chunk) const { return chunk * size; }
  Index images(Index chunk) const { return std::min(size, n - begin(chunk)); }
};

/// At most `most` images a chunk, and all chunks about as large.
inline Chunks cut_into_chunks(Index n, Index most) {
  if (n <= 0) return {};
  const Index few = (n - 1) / most + 1, size = (n - 1) / few + 1;
  return {n, size, (n - 1) / size + 1};
}

/// Places for chunks that are under way at the same time.
struct Ring {
  Index images = 1;  // that a slot has room for
  Index slots = 1;

  Index slot(Index chunk) const { return chunk % slots; }
};

/// What all slots take at most, where there are several.
inline constexpr Index ring_bytes = Index{16} << 20;
inline constexpr Index most_slots = 16;

/// As many images a slot as make `chunk_bytes`, at least one.
inline Ring ring_of_bytes(Index image_bytes, Index chunk_bytes) {
  const Index images = std::max<Index>(chunk_bytes / image_bytes, 1);
  return {images, std::clamp<Index>(ring_bytes / (images * image_bytes), 1, most_slots)};
}

/// Slots of that many images.
inline Ring ring_of_images(Index image_bytes, Index images) {
  const Index fit = image_bytes > ring_bytes / images ? 1 : ring_bytes / (images * image_bytes);
  return {images, std::clamp<Index>(fit, 1, most_slots)};
}

}  // namespace convoy::network
