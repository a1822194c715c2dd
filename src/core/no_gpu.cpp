// The seam to the GPU code in a build without any.
#include <fmt/core.h>

#include "core/failure.hpp"
#include "core/gpu.hpp"

namespace convoy::gpu {
namespace {

constexpr const char* why =
    "this build of Convoy has no GPU code. Install the CUDA toolkit (12.5 or later) and "
    "configure with -DCONVOY_CUDA=ON (cmake --preset cuda)";

[[noreturn]] void refuse(Device device) {
  throw NoDevice(fmt::format("device {}: {}, or use cpu.", to_text(device), why));
}

}  // namespace

Survey survey() {
  return {{}, {}, {}, why};
}
Machine machine(int index) {
  refuse({DeviceKind::cuda, index});
}
void* allocate(Device device, std::size_t, const std::string&) {
  refuse(device);
}
void release(Device, void*) noexcept {}
void copy(const CopyRows& rows, Stream) {
  refuse(rows.from_device.kind == DeviceKind::cuda ? rows.from_device : rows.to_device);
}
void synchronize(Device device, Stream) {
  refuse(device);
}
double time(Device device, Stream, const std::function<void()>&) {
  refuse(device);
}

void fill(Device device, Stream, const Fill&) {
  refuse(device);
}
void finish_fills(Device device, Stream, std::int32_t*, Index) {
  refuse(device);
}

void compare(Device device, Stream, const Watch&) {
  refuse(device);
}

void forget(Device device, Stream, void*, std::size_t) {
  refuse(device);
}

Table watch_table(Device device, std::span<const Watch>) {
  refuse(device);
}
void compare_group(Device device, Stream, const Table&, const void*) {
  refuse(device);
}
Table fill_table(Device device, std::span<const GroupFill>) {
  refuse(device);
}
void fill_group(Device device, Stream, const Table&, const std::int32_t*, Index) {
  refuse(device);
}

void values_of_pixels(Device device, Stream, const std::uint8_t*, Index, Index, const float*,
                      float*) {
  refuse(device);
}
void normalise(Device device, Stream, const float*, Index, Index, const float*, float*) {
  refuse(device);
}
void mean_and_labels(Device device, Stream, DType, const void*, Index, Index, Index, float*,
                     std::int32_t*) {
  refuse(device);
}

}  // namespace convoy::gpu
