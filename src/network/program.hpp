// A network that can run: its graph cut into steps, each bound to a kernel or a pass, with packed
// weights, and where each value lies. Immutable: any number of contexts (network/context.hpp) run
// it at the same time. build.cpp makes it.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "convoy/network.hpp"
#include "graph/graph.hpp"
#include "network/convert.hpp"
#include "network/memory_plan.hpp"
#include "plan/bound.hpp"

namespace convoy::network {

/// Of a stage, and so of a pass through the layers.
inline constexpr Index most_images = (Index{1} << 31) - 1;

/// Where a value lies: channels [offset, offset + C) of each pixel of a buffer.
struct Place {
  std::size_t buffer = graph::no_id;  // none: it never reaches memory
  Index offset = 0;                   // in channels
  Index pitch = 0;                    // channels from pixel to pixel
};

/// Memory that steps read and write.
struct Buffer {
  graph::ValueId owner = graph::no_id;  // the value that takes all of it
  bool of_caller = false;               // it is one of the inputs: a run is given it
  /// The steps that write it first and read it last; -1: it is there before the first step.
  Index first = 0, last = 0;
};

/// Turns images into what the network reads: u8 to x', or f32 normalised.
struct ConvertStep {
  graph::ValueId x = graph::no_id, y = graph::no_id;
  Conversion conversion;
  Tensor device_tables;  // on a GPU: values of pixels [C][256], or mean and std [2][C]
};

/// Layers [first, first + count), bound to one kernel.
struct KernelStep {
  std::size_t first = 0, count = 1;
  graph::ValueId x = graph::no_id, y = graph::no_id;
  std::unique_ptr<Bound> bound;
  std::vector<Tensor> bias;  // of each layer, on the device; empty where folded or without
  Index fold = 1;            // steps that a plan sees as further images, where it has no neuron
  bool mean = false;         // y is the mean over the steps
  /// One step a layer, with the same bits: for a kernel that keeps nothing of what lies between.
  std::vector<KernelStep> apart;
};

/// Channels of one value, copied to where others lie: a part of a concatenation, or a slice, if a
/// kernel on one of its sides takes no slice.
struct CopyStep {
  graph::ValueId from = graph::no_id, to = graph::no_id;
  Index from_channel = 0, to_channel = 0, channels = 0;
  std::size_t layer = 0;  // the one that waits for it, for profiles
};

/// The mean over the time steps.
struct MeanStep {
  graph::ValueId x = graph::no_id, y = graph::no_id;
};

using Step = std::variant<ConvertStep, KernelStep, CopyStep, MeanStep>;

struct Program {
  NetworkOptions options;
  Machine machine;
  graph::Graph graph;  // fused
  std::vector<graph::NodeId> layers;
  std::vector<LayerReport> reports;  // of each layer
  Index parameters = 0;
  std::vector<Step> steps;
  std::vector<Place> places;  // of each value
  std::vector<Buffer> buffers;
  std::shared_ptr<Threads> threads;  // of the host: conversions, and all kernels on the CPU
  /// The first kernel reads u8 pixels as they come: their values are folded into its weights.
  bool reads_pixels = false;
  /// All of it is one step that takes any number of images at once and gives means and labels.
  bool any_n = false;
  Index at_once = 1;  // images of one pass through the steps, at most; `any_n` takes more

  bool on_gpu() const { return machine.device.kind == DeviceKind::cuda; }
  const graph::Node& layer(std::size_t i) const { return graph.nodes[layers[i]]; }
  const Stage& stage(std::size_t i) const { return layer(i).as<graph::Fused>()->stage; }
  const graph::Value& value(graph::ValueId id) const { return graph.values[id]; }
  /// Time steps of a value: T, or 1.
  Index steps_of(graph::ValueId id) const { return value(id).timed ? graph.steps : 1; }
  /// Elements of one image of a value, all its steps.
  Index image_elements(graph::ValueId id) const { return value(id).elements() * steps_of(id); }
  Size image_bytes(graph::ValueId id) const {
    return Size(image_elements(id)) * static_cast<Index>(size_of(value(id).type));
  }
  /// Whether the value takes all of a buffer, which may then lie in the memory of a caller.
  bool owns_buffer(graph::ValueId id) const {
    return places[id].buffer != graph::no_id && buffers[places[id].buffer].owner == id;
  }

  /// Frees the weights that are packed by now.
  void forget_weights();
  /// What the conversion gives, or the first input.
  graph::ValueId converted_input() const;

  /// The arena of n images: where each buffer and each step's workspace lies in it.
  struct Arena {
    std::vector<Index> buffer;     // offsets in bytes
    std::vector<Index> workspace;  // of each step; -1: it needs none
    Size bytes;
  };
  Arena arena(Index n) const;
};

/// Throws Error for options that no network takes.
void check_options(const NetworkOptions& options);
/// Makes a program of a graph of plain operators. Throws Error, also if memory runs out.
Program make_program(graph::Graph graph, const NetworkOptions& options);

}  // namespace convoy::network

namespace convoy {

/// What the network runs, for the house itself. Throws Error if the network was moved from.
const network::Program& program_of(const Network& network);

}  // namespace convoy
