// Running a network on tensors by their names.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/printable.hpp"
#include "network/impl.hpp"
#include "plan/operands.hpp"

namespace convoy {
namespace {

/// Of all ports; empty: not named.
template <class View>
using Views = std::vector<View>;

std::vector<Index> shape_of(const Port& port, Index n) {
  std::vector<Index> shape = port.axes;
  shape.insert(shape.begin(), n);
  if (port.steps > 0) shape.insert(shape.begin(), port.steps);
  return shape;
}

/// Which axis of a port's tensors is N.
std::size_t images_axis(const Port& port) {
  return port.steps > 0 ? 1 : 0;
}

/// The views by their ports; else what is wrong.
template <class Named, class View>
std::string sorted_by_port(const std::vector<Port>& ports, std::span<const Named> given,
                           std::string_view kind, bool all, Views<View>& views) {
  views.resize(ports.size());
  std::vector<bool> named(ports.size());
  for (const Named& one : given) {
    const auto port =
        std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == one.name; });
    if (port == ports.end()) {
      std::vector<std::string> names;
      names.reserve(ports.size());
      for (const Port& p : ports) names.push_back(printable(p.name));
      return fmt::format("{} \"{}\": the network has none of that name, expected {}.", kind,
                         printable(one.name), fmt::join(names, ", "));
    }
    const auto i = static_cast<std::size_t>(port - ports.begin());
    if (named[i])
      return fmt::format("{} {}: it is given twice, expected once.", kind, printable(one.name));
    if (one.view.rank == 0)
      return fmt::format("{} {}: it is an empty view, expected a tensor.{}", kind,
                         printable(one.name), all ? "" : " Leave it out if you do not want it.");
    named[i] = true;
    views[i] = one.view;
  }
  for (std::size_t i = 0; i < ports.size() && all; ++i)
    if (!named[i])
      return fmt::format("{} {}: it is missing. Give a tensor of that name.", kind,
                         printable(ports[i].name));
  return {};
}

std::string wrong_shape(const Port& port, const ConstTensorView& view, Index n) {
  const std::vector<Index> shape = shape_of(port, n);
  if (view.dtype == port.dtype && view.rank == static_cast<int>(shape.size()) &&
      std::equal(shape.begin(), shape.end(), view.shape.begin()) && view.contiguous())
    return {};
  return fmt::format("{}: {}, expected {}[{}], contiguous. Copy it into such a tensor.",
                     printable(port.name), describe(view), to_text(port.dtype),
                     fmt::join(shape, ","));
}

std::string wrong_memory(const Port& port, const ConstTensorView& view, Device device) {
  if (!(view.device == Device{}) && !(view.device == device))
    return fmt::format(
        "{}: it is on {}, expected {}. Copy it there first.", printable(port.name),
        to_text(view.device),
        device == Device{} ? "the host" : fmt::format("the host or {}", to_text(device)));
  return check_aligned(printable(port.name), view).message();
}

bool overlap(const ConstTensorView& a, const ConstTensorView& b) {
  const auto begin = [](const ConstTensorView& view) {
    return reinterpret_cast<std::uintptr_t>(view.data);
  };
  const auto end = [&](const ConstTensorView& view) {
    return begin(view) + static_cast<std::uintptr_t>(extent_bytes(view).value());
  };
  return a && b && begin(a) < end(b) && begin(b) < end(a);
}

}  // namespace

/// One run by names: parts of at most `at_once` images, by way of the device's memory if a tensor
/// is not there.
class Network::Impl::NamedRun {
 public:
  NamedRun(const Impl& network, Stream stream) : network_(network), stream_(stream) {}

  /// What is wrong with the tensors; empty: nothing.
  std::string take(std::span<const NamedInput> inputs, std::span<const NamedOutput> outputs) {
    std::string wrong = sorted_by_port(network_.input_ports, inputs, "input", true, x_);
    if (wrong.empty()) wrong = sorted_by_port(network_.output_ports, outputs, "output", false, y_);
    if (!wrong.empty()) return wrong;
    const auto axis = static_cast<int>(images_axis(network_.input_ports.front()));
    n_ = x_.front().rank > axis ? x_.front().shape[static_cast<std::size_t>(axis)] : 0;
    wrong = wrong_tensors(network_.input_ports, x_, true);
    if (wrong.empty()) wrong = wrong_tensors(network_.output_ports, y_, false);
    return wrong.empty() ? overlapping() : wrong;
  }
  Index images() const { return n_; }

  Status run(network::Context& context) {
    const Index most = network_.program.at_once;
    for (Index first = 0; first < n_; first += most)
      if (Status status = run_part(context, first, std::min(most, n_ - first)); !status.ok())
        return status;
    return {};
  }

 private:
  template <class View>
  std::string wrong_tensors(const std::vector<Port>& ports, const Views<View>& views,
                            bool all) const {
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (!all && views[i].rank == 0) continue;
      std::string wrong = wrong_shape(ports[i], views[i], n_);
      if (wrong.empty() && n_ > 0 && !views[i])
        wrong = fmt::format("{}: its data is null, expected memory of {}[{}].",
                            printable(ports[i].name), to_text(ports[i].dtype),
                            fmt::join(shape_of(ports[i], n_), ","));
      if (wrong.empty() && n_ > 0)
        wrong = wrong_memory(ports[i], views[i], network_.program.machine.device);
      if (!wrong.empty()) return wrong;
    }
    return {};
  }
  std::string overlapping() const {
    for (std::size_t i = 0; i < y_.size(); ++i) {
      for (std::size_t j = 0; j < x_.size(); ++j)
        if (overlap(y_[i], x_[j]))
          return overlap_text(network_.output_ports[i], network_.input_ports[j]);
      for (std::size_t j = 0; j < i; ++j)
        if (overlap(y_[i], y_[j]))
          return overlap_text(network_.output_ports[i], network_.output_ports[j]);
    }
    return {};
  }
  static std::string overlap_text(const Port& a, const Port& b) {
    return fmt::format("{} and {} overlap in memory. Give {} its own memory.", printable(a.name),
                       printable(b.name), printable(a.name));
  }

  /// Whether a pass can use the caller's memory as it is: there, and the part's images in a row.
  bool as_it_is(const Port& port, const ConstTensorView& view, Index n) const {
    return view.device == network_.program.machine.device && (port.steps == 0 || n == n_);
  }

  Status run_part(network::Context& context, Index first, Index n) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    inputs.reserve(x_.size());
    outputs.reserve(y_.size());
    std::vector<Tensor> own(x_.size() + y_.size());
    const auto place = [&](const Port& port, const ConstTensorView& view, Tensor& there) -> void* {
      if (!view) return nullptr;
      if (as_it_is(port, view, n))
        return const_cast<std::byte*>(bytes_at(view, first * view.stride[images_axis(port)]));
      there = Tensor(port.dtype, shape_of(port, n), network_.program.machine.device);
      return there.view().data;
    };
    for (std::size_t i = 0; i < x_.size(); ++i) {
      inputs.push_back(place(network_.input_ports[i], x_[i], own[i]));
      if (own[i].view()) copy_tensor(part(x_[i], first, n), own[i], stream_);
    }
    for (std::size_t i = 0; i < y_.size(); ++i)
      outputs.push_back(place(network_.output_ports[i], y_[i], own[x_.size() + i]));
    network::Pass pass{.n = n, .inputs = inputs, .outputs = outputs, .stream = stream_};
    Status status = context.run(pass);
    for (std::size_t i = 0; i < y_.size() && status.ok(); ++i)
      if (own[x_.size() + i].view())
        copy_out(network_.output_ports[i], own[x_.size() + i], y_[i], first, n);
    // Memory of this run is freed behind the work that uses it.
    if (network_.on_gpu() && std::any_of(own.begin(), own.end(), [](const Tensor& t) {
          return static_cast<bool>(t.view());
        }))
      gpu::synchronize(network_.program.machine.device, stream_);
    return status;
  }
  /// Images [first, first + n) of an input, which has no steps.
  static ConstTensorView part(ConstTensorView view, Index first, Index n) {
    view.data = bytes_at(view, first * view.stride[0]);
    view.shape[0] = n;
    return view;
  }
  /// Of an output with steps the part's images lie apart from step to step.
  void copy_out(const Port& port, const Tensor& from, const TensorView& to, Index first, Index n) {
    std::vector<Index> shape = port.axes;
    shape.insert(shape.begin(), n);
    const Index steps = std::max<Index>(port.steps, 1), values = from.elements() / steps;
    for (Index t = 0; t < steps; ++t) {
      const ConstTensorView here(bytes_at(from, t * values), port.dtype, shape, from.view().device);
      const Index step = port.steps > 0 ? t * to.stride[0] : 0;
      const TensorView there(
          const_cast<std::byte*>(bytes_at(to, step + first * to.stride[images_axis(port)])),
          port.dtype, shape, to.device);
      copy_tensor(here, there, stream_);
    }
  }

  const Impl& network_;
  Stream stream_;
  Views<ConstTensorView> x_;
  Views<TensorView> y_;
  Index n_ = 0;
};

Status Network::Impl::run(std::span<const NamedInput> given, std::span<const NamedOutput> wanted,
                          Stream stream) const {
  NamedRun run(*this, stream);
  const std::string wrong = run.take(given, wanted);
  if (!wrong.empty()) return {StatusCode::invalid_operand, wrong};
  if (run.images() == 0) return {};
  try {
    const network::Contexts::Taken context = contexts.take(stream);
    if (!context) return {StatusCode::busy, none_free};
    return run.run(*context);
  } catch (...) {
    return current_failure();
  }
}

void Network::Impl::warm_by_names(Index n) const {
  for (const Index images : {n, Index{1}}) {
    std::vector<Tensor> zeros;
    std::vector<NamedInput> inputs;
    std::vector<NamedOutput> outputs;
    zeros.reserve(input_ports.size() + output_ports.size());
    inputs.reserve(input_ports.size());
    outputs.reserve(output_ports.size());
    const auto add = [&](const Port& port) {
      zeros.emplace_back(port.dtype, shape_of(port, images));
      return zeros.back().view();
    };
    for (const Port& port : input_ports) inputs.push_back({port.name, add(port)});
    for (const Port& port : output_ports) outputs.push_back({port.name, add(port)});
    run(inputs, outputs, {}).or_throw();
  }
}

}  // namespace convoy
