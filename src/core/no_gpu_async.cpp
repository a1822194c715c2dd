// Copies and events in a build without GPU code.
#include <utility>

#include "core/gpu.hpp"
#include "core/gpu_async.hpp"

namespace convoy::gpu {

void* allocate_pinned(Device device, std::size_t, const std::string&) {
  static_cast<void>(machine(device.index));  // throws
  return nullptr;
}
void release_pinned(void*) noexcept {}
bool is_pinned(Device, const void*) {
  return false;
}
Device device_of(const void*) {
  static_cast<void>(machine(0));  // throws
  return {};
}
bool is_captured(Device, Stream) {
  return false;
}
StreamFacts facts_of(Device, Stream) {
  return {};
}
bool wait_for_all(Device) noexcept {
  return true;
}
bool is_done(Device, Stream) {
  return true;
}
void copy_async(Device, void*, const void*, std::size_t, Stream) {}

Event::Event(Device device) : device_(device) {
  static_cast<void>(machine(device.index));  // throws
}
// Not defaulted: with CUDA it releases the event.
Event::~Event() {}
Event::Event(Event&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
void Event::record(Stream) {}
void Event::hold_back(Stream) const {}
bool Event::reached() const {
  return true;
}
void Event::wait() const {}

}  // namespace convoy::gpu
