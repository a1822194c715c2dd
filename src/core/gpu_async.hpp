// More of the seam to the GPU code (core/gpu.hpp): work beside other work, and memory of the host
// that a GPU reaches by itself. What runs from and to the host need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "convoy/tensor.hpp"

namespace convoy::gpu {

/// Page-locked memory of the host, zero-filled, which GPUs read and write at the same address.
/// `what` names it in the Error thrown when there is no such device or not enough memory.
void* allocate_pinned(Device device, std::size_t bytes, const std::string& what);
void release_pinned(void* memory) noexcept;

/// Whether memory of the host is page-locked and known to CUDA, whoever did that. Throws Error.
bool is_pinned(Device device, const void* memory);

/// The GPU that memory was allocated on. Throws Error for memory that CUDA knows none of, or of the
/// host.
Device device_of(const void* memory);

/// Whether what is put on the stream is recorded in a CUDA graph instead of run. Throws Error.
bool is_captured(Device device, Stream stream);

/// Which stream a handle is, and which capture it is in. Numbers are never used again, as handles
/// are; cudaStreamPerThread is the calling thread's.
struct StreamFacts {
  std::uint64_t stream = 0;   // 0: the legacy default stream
  std::uint64_t capture = 0;  // 0: what it gets is run
  bool operator==(const StreamFacts&) const = default;
};
/// Throws Error.
StreamFacts facts_of(Device device, Stream stream);

/// Waits for all work of the device; false if that can't be done now, as during a capture.
bool wait_for_all(Device device) noexcept;

/// Whether all work of the stream is done. Throws Error with what went wrong in it.
bool is_done(Device device, Stream stream);

/// Enqueues a copy between the host and the device. Nothing waits where the host's side is pinned.
/// Throws Error.
void copy_async(Device device, void* to, const void* from, std::size_t bytes, Stream stream);

/// A point in a stream's work.
class Event {
 public:
  /// Throws Error when the device is not here.
  explicit Event(Device device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;

  /// Each throws Error.
  void record(Stream stream);           // behind all work that the stream has now
  void hold_back(Stream stream) const;  // what is put there from now on runs after the point
  bool reached() const;
  void wait() const;  // of the host

 private:
  Device device_;
  void* handle_ = nullptr;
};

}  // namespace convoy::gpu
