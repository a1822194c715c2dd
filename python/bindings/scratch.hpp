// Memory that runs on a GPU need beside their operands.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "core/gpu_async.hpp"

namespace convoy::python {

/// Workspaces of a plan's runs. PyTorch and CuPy lend one for each run, on the run's stream, from
/// the allocator that orders memory by stream and knows of captures; for other arrays there is one
/// of the plan's own, and a run waits for the one before it, whatever their streams.
class Scratch {
 public:
  Scratch(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {}

  class Lent;

 private:
  Device device_;
  std::size_t bytes_;
  std::mutex mutex_;  // of what follows; the GIL is not taken while it is held
  Tensor own_;
  std::optional<gpu::Event> done_;          // of the last run that used it
  std::vector<nanobind::object> captured_;  // what graphs write to; guarded by the GIL
  std::vector<Tensor> captured_own_;
};

/// A workspace for one run.
class Scratch::Lent {
 public:
  /// With the GIL. Raises what the library's allocator does.
  Lent(Scratch& scratch, const ArrayType& type, Stream stream);
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  /// The memory, 256-byte aligned; the run follows. Without the GIL. Throws Error.
  void* begin();
  /// The run is enqueued. Throws Error.
  void end();

 private:
  Scratch& scratch_;
  Stream stream_;
  nanobind::object memory_;  // of a library
  void* data_ = nullptr;
  bool waits_ = false;  // cudaStreamPerThread: the allocator takes it for one stream
  std::unique_lock<std::mutex> lock_;
  bool captured_ = false;
};

}  // namespace convoy::python
