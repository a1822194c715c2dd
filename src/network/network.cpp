#include "convoy/network.hpp"

#include "core/failure.hpp"
#include "network/impl.hpp"

namespace convoy {

Network::Network(const std::string& folder, const NetworkOptions& options) try
    : impl_(Impl::make(folder, options)) {
} catch (...) {
  rethrow_as_error();
}
Network::Network(const NetworkText& text, const NetworkParameters& parameters,
                 const NetworkOptions& options) try
    : impl_(Impl::make(text, parameters, options)) {
} catch (...) {
  rethrow_as_error();
}
Network::Network(std::unique_ptr<Impl> made) : impl_(std::move(made)) {}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

// What a Network without an Impl is.
constexpr const char* moved_from =
    "this Network was moved from. Use the Network that it was moved to, or load it again.";

const Network::Impl& Network::impl() const {
  if (!impl_) throw Error(moved_from, StatusCode::moved_from);
  return *impl_;
}

const network::Program& program_of(const Network& network) {
  return network.impl().program;
}

const std::vector<Port>& Network::inputs() const {
  return impl().input_ports;
}
const std::vector<Port>& Network::outputs() const {
  return impl().output_ports;
}
const NetworkText& Network::text() const {
  if (!impl().text)
    throw Error(
        "text: this Network was made by a GraphBuilder, expected a network.txt. "
        "Look at inputs(), outputs() and layers().");
  return *impl().text;
}
Index Network::classes() const {
  return impl().classes();
}
Index Network::parameters() const {
  return impl().program.parameters;
}
Index Network::batch() const {
  return impl().program.at_once;
}
int Network::threads() const {
  return impl().program.threads->count();
}
const std::vector<LayerReport>& Network::layers() const {
  return impl().program.reports;
}

Status Network::run(const ConstTensorView& images, const TensorView& logits,
                    const TensorView& labels, Stream stream) const noexcept {
  try {
    return impl_ ? impl_->run({images, logits, labels}, nullptr, stream)
                 : Status(StatusCode::moved_from, moved_from);
  } catch (...) {
    return current_failure();
  }
}

Status Network::run(std::span<const NamedInput> inputs, std::span<const NamedOutput> outputs,
                    Stream stream) const noexcept {
  try {
    return impl_ ? impl_->run(inputs, outputs, stream) : Status(StatusCode::moved_from, moved_from);
  } catch (...) {
    return current_failure();
  }
}

Status Network::profile(const ConstTensorView& images, std::vector<double>& seconds,
                        std::vector<LayerSpan>* spans) const try {
  seconds.resize(impl().program.reports.size(), 0.0);
  network::Times times{.seconds = seconds.data(), .spans = spans};
  return impl().run({images, {}, {}}, &times, {});
} catch (...) {
  rethrow_as_error();
}

void Network::warm(Index n) const try { impl().warm(n); } catch (...) {
  rethrow_as_error();
}

std::vector<Tensor> Network::trace(const ConstTensorView& images) const try {
  return impl().trace(images);
} catch (...) {
  rethrow_as_error();
}

}  // namespace convoy
