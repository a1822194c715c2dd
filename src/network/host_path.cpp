#include "network/host_path.hpp"

namespace convoy::network {

HostPath::HostPath(Device device) : device_(device), copies_(device) {
  for (Index i = 0; i < 2 * most_slots; ++i) events_.emplace_back(device);
}

namespace {

template <class T>
std::byte* grown(std::optional<T>& memory, Index bytes, Device device) {
  if (!memory || memory->view().shape[0] < bytes) {
    memory.reset();  // first: both may not fit
    memory.emplace(DType::u8, std::vector<Index>{bytes}, device);
  }
  return memory->template data<std::byte>();
}

}  // namespace

std::byte* HostPath::staging(Index bytes) {
  return grown(staging_, bytes, device_);
}
std::byte* HostPath::images(Index bytes) {
  return grown(images_, bytes, device_);
}
std::byte* HostPath::outputs(Index bytes) {
  return grown(outputs_, bytes, device_);
}

}  // namespace convoy::network
