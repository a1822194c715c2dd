// What a Network is: a program, the contexts that run it, and what surrounds a run: checks, chunks,
// the way from and to the host.
#pragma once

#include <memory>
#include <optional>

#include "network/context.hpp"
#include "network/load.hpp"
#include "network/pixels_of_values.hpp"
#include "network/program.hpp"

namespace convoy {

struct Network::Impl {
  /// What a caller gives for images, logits and labels; checked.
  struct Operands {
    const ConstTensorView& images;
    const TensorView &logits, &labels;
  };
  /// Where logits and labels go, or null. The last two: a GPU's kernels may write there.
  struct Outputs {
    float* logits = nullptr;
    std::int32_t* labels = nullptr;
    bool logits_there = true, labels_there = true;
  };

  std::optional<NetworkText> text;  // none: it was built as a graph
  network::Program program;
  std::vector<Port> input_ports, output_ports;
  std::optional<network::PixelsOfValues> pixels_of_values;  // of programs that read pixels
  /// The graph of such a program before any pass, for `of_values`.
  std::optional<graph::Graph> plain;
  mutable network::Contexts contexts;

  // The same layers for images of values that no pixel has, made by the first run that needs them.
  mutable MadeOnce<Impl> of_values;

  Impl(std::optional<NetworkText> text_, graph::Graph graph, const NetworkOptions& options);
  /// Throws Error also where memory runs out.
  static std::unique_ptr<Impl> make(const std::string& folder, const NetworkOptions& options);
  static std::unique_ptr<Impl> make(const NetworkText& text, const NetworkParameters& parameters,
                                    const NetworkOptions& options);
  static std::unique_ptr<Impl> make(graph::Graph graph, const NetworkOptions& options);

  bool on_gpu() const { return program.on_gpu(); }
  const graph::Value& input() const { return program.value(program.graph.inputs[0]); }
  const graph::Value& output() const { return program.value(program.graph.outputs[0]); }
  Index input_values() const { return input().elements(); }
  /// Of one image, all its values of the first output.
  Index classes() const { return output().elements(); }

  // Running. Pointers are on the network's device unless they say host.
  class HostRun;
  class NamedRun;
  std::string check(const Operands& operands) const;
  /// Whether it can be run by images, logits and labels; if not, by named tensors alone.
  bool takes_images() const {
    return input_ports.size() == 1 && output_ports.size() == 1 && output_ports.front().steps == 0;
  }
  /// Images that are x' in place of pixels.
  bool of_other_type(const ConstTensorView& images) const { return images.dtype != input().type; }
  /// What turns such images back to the pixels that the first step reads. Null: nothing need.
  const network::PixelsOfValues* inverse_for(const ConstTensorView& images) const {
    return pixels_of_values && of_other_type(images) ? &*pixels_of_values : nullptr;
  }
  Outputs outputs_at(const Operands& operands, Index first) const;
  /// One pass through the steps.
  Status run_chunk(network::Context& context, const void* images, DType type, Index n,
                   const Outputs& to, network::Times* times, Stream stream,
                   bool x_on_host = false) const;
  Status run_there(network::Context& context, const Operands& operands, network::Times* times,
                   Stream stream) const;
  Status run_by_host(network::Context& context, const Operands& operands, network::Times* times,
                     Stream stream) const;
  Status run_on_cpu(network::Context& context, const Operands& operands,
                    network::Times* times) const;
  Status run_odd(const Operands& operands, std::vector<Index> odd, network::Times* times,
                 Stream stream) const;
  Status run(const Operands& operands, network::Times* times, Stream stream) const;
  Status run(std::span<const NamedInput> given, std::span<const NamedOutput> wanted,
             Stream stream) const;
  void warm(Index n) const;
  void warm_by_names(Index n) const;
  class Trace;
  std::vector<Tensor> trace(const ConstTensorView& images) const;

  static constexpr const char* none_free =
      "64 runs of this network are under way, expected fewer. Wait for one of them, or load a "
      "second Network.";
};

/// Where value `values` of a dense view lies.
inline const std::byte* bytes_at(const ConstTensorView& view, Index values) {
  return static_cast<const std::byte*>(view.data) +
         values * static_cast<Index>(size_of(view.dtype));
}

}  // namespace convoy
