// Copies that a run makes on a GPU.
#include "core/gpu_rows.hpp"

#include <cuda_runtime_api.h>

#include <limits>

#include "cuda/error.hpp"
#include "cuda/memory.hpp"

namespace convoy::gpu {
namespace {

cudaError_t enqueue(const Rows& rows, cudaStream_t stream) noexcept {
  constexpr std::size_t most_pitch = std::numeric_limits<int>::max();  // of a copy of rows
  if (rows.from_pitch == rows.bytes && rows.to_pitch == rows.bytes)
    return cudaMemcpyAsync(rows.to, rows.from, rows.bytes * rows.count, cudaMemcpyDeviceToDevice,
                           stream);
  if (rows.from_pitch <= most_pitch && rows.to_pitch <= most_pitch)
    return cudaMemcpy2DAsync(rows.to, rows.to_pitch, rows.from, rows.from_pitch, rows.bytes,
                             rows.count, cudaMemcpyDeviceToDevice, stream);
  cudaError_t error = cudaSuccess;
  for (std::size_t i = 0; i < rows.count && error == cudaSuccess; ++i)
    error = cudaMemcpyAsync(static_cast<char*>(rows.to) + i * rows.to_pitch,
                            static_cast<const char*>(rows.from) + i * rows.from_pitch, rows.bytes,
                            cudaMemcpyDeviceToDevice, stream);
  return error;
}

}  // namespace

Status copy_rows(Device device, const Rows& rows, void* stream) noexcept {
  const cuda::OnDevice on(device.index);
  cudaError_t error = on.error();
  if (error == cudaSuccess) error = enqueue(rows, static_cast<cudaStream_t>(stream));
  if (error == cudaSuccess) return {};  // the text below allocates
  static_cast<void>(cudaGetLastError());
  return cuda::launch_status(cuda::describe(error, "copying a part of a run's images"));
}

}  // namespace convoy::gpu
