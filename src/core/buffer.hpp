// 64-byte aligned host memory: packed weights, workspaces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace convoy {

/// Aligned to a cache line, or to a huge page where the bytes fill one: weights that are streamed
/// once an image would miss the translation buffers every 4 KiB. Free with std::free; may be null.
inline void* allocate_aligned(std::size_t bytes) {
  constexpr std::size_t line = 64, huge_page = std::size_t{1} << 21;
  const std::size_t unit = bytes < huge_page ? line : huge_page;
  if (bytes > std::size_t{1} << 62) return nullptr;  // rounded up it could be 0
  const std::size_t whole = std::max(line, (bytes + unit - 1) / unit * unit);
  void* const memory = std::aligned_alloc(unit, whole);
#ifdef __linux__
  // A hint: memory without huge pages is as good, but slower.
  if (memory && unit == huge_page) madvise(memory, whole, MADV_HUGEPAGE);
#endif
  return memory;
}

/// Uninitialised, aligned to a cache line. T is a trivial type.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) : size_(count) {
    if (count > (std::size_t{1} << 62) / sizeof(T)) throw std::bad_alloc();
    data_.reset(static_cast<T*>(allocate_aligned(count * sizeof(T))));
    if (!data_) throw std::bad_alloc();
  }
  T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace convoy
