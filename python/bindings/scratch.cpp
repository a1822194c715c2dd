#include "scratch.hpp"

#include <cstdint>
#include <utility>

#include "core/gpu.hpp"
#include "errors.hpp"

namespace nb = nanobind;

namespace convoy::python {
namespace {

bool is_of_each_thread(Stream stream) {
  return reinterpret_cast<std::uintptr_t>(stream.handle) == 2;  // fixed by CUDA's headers
}

/// By the library's own function, on the stream: it must be the current one meanwhile.
NewArray lend(const ArrayType& type, Device device, Stream stream, std::size_t bytes) {
  const std::vector<Index> shape{static_cast<Index>(bytes)};
  const auto handle = reinterpret_cast<std::uintptr_t>(stream.handle);
  const bool torch = type.maker == Maker::torch;
  // 1 names the default stream too; PyTorch knows it as 0.
  const std::uintptr_t named = handle == 1 ? 0 : handle;
  const auto current = reinterpret_cast<std::uintptr_t>(current_stream(type, device).handle);
  if (current == named) return new_array(type, DType::u8, shape, device);
  const nb::object cuda = nb::module_::import_(torch ? "torch.cuda" : "cupy.cuda");
  const nb::object external = cuda.attr("ExternalStream")(named, device.index);
  const nb::object there = cuda.attr(torch ? "device" : "Device")(device.index);
  const With on_device(there);
  const With on_stream(torch ? cuda.attr("stream")(external) : external);
  return new_array(type, DType::u8, shape, device);
}

}  // namespace

Scratch::Lent::Lent(Scratch& scratch, const ArrayType& type, Stream stream)
    : scratch_(scratch), stream_(stream) {
  if (scratch.bytes_ == 0) return;
  captured_ = gpu::is_captured(scratch.device_, stream);
  if (type.maker != Maker::torch && type.maker != Maker::cupy) return;
  waits_ = is_of_each_thread(stream);
  if (waits_ && captured_)
    raise(StatusCode::no_workspace,
          "stream: cudaStreamPerThread is being captured, expected another stream: the run takes "
          "memory that it can only release on a stream you made. Capture on such a stream.");
  NewArray made = lend(type, scratch.device_, stream, scratch.bytes_);
  memory_ = std::move(made.object);
  data_ = made.view.data;
  // A graph of PyTorch's keeps what was allocated in its capture; CuPy would give it to others.
  if (captured_ && type.maker == Maker::cupy) scratch.captured_.push_back(memory_);
}

void* Scratch::Lent::begin() {
  if (scratch_.bytes_ == 0 || data_) return data_;
  const auto make = [&] {
    return Tensor(DType::u8, {static_cast<Index>(scratch_.bytes_)}, scratch_.device_);
  };
  lock_ = std::unique_lock<std::mutex>(scratch_.mutex_);
  if (captured_) {
    scratch_.captured_own_.push_back(make());  // as long as the plan, whose weights graphs read too
    return scratch_.captured_own_.back().view().data;
  }
  if (!scratch_.own_.view()) scratch_.own_ = make();
  if (!scratch_.done_)
    scratch_.done_.emplace(scratch_.device_);
  else
    scratch_.done_->hold_back(stream_);
  return scratch_.own_.view().data;
}

void Scratch::Lent::end() {
  if (waits_) gpu::synchronize(scratch_.device_, stream_);
  if (!lock_.owns_lock()) return;
  if (!captured_) scratch_.done_->record(stream_);
  lock_.unlock();
}

}  // namespace convoy::python
