// What a loaded network holds: its layers cut into steps, and the memory between them. build.cpp
// makes it, run.cpp runs it, trace.cpp keeps what each layer gives.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "convoy/network.hpp"
#include "core/process.hpp"
#include "network/convert.hpp"
#include "network/graph.hpp"
#include "network/host_path.hpp"
#include "network/memory_plan.hpp"
#include "network/pixels_of_values.hpp"
#include "plan/bound.hpp"

namespace convoy {

struct Network::Impl {
  /// One of several tensors that a step reads, put side by side before it runs.
  struct Part {
    Index tensor = 0, channels = 0, before = 0;  // its number, its channels, and those before it
    Index all = 0;                               // channels of all parts
    Index pixels = 0;                            // of one image, over all its steps
  };
  /// Layers [first, first + count), bound to one kernel.
  struct Step {
    std::size_t first = 0, count = 1;
    std::unique_ptr<Bound> bound;
    std::vector<Tensor> bias;  // of each layer, on the device; empty where folded or without
    Index fold = 1;            // steps that a plan sees as further images, where it has no neuron
    bool mean = false;         // its output is the mean over the steps already
    bool timed = false;        // its output differs from step to step
    Index values = 0;          // of its output, of one image and step
    Index in = 0, out = 0;     // numbers of tensors; 0 is the input of the first step
    std::vector<Part> parts;   // what `in` is put together from; empty: it is one step's output
    /// One step a layer, with the same bits: for a kernel that keeps nothing of what lies between.
    std::vector<Step> apart;
    mutable std::vector<StageArgs> later;  // of a run: those of the layers behind the first
  };

  /// What a caller gives; checked.
  struct Operands {
    const ConstTensorView& images;
    const TensorView &logits, &labels;
  };
  /// Where means and labels go, or null. The last two: a GPU's kernels may write there.
  struct Outputs {
    float* mean = nullptr;
    std::int32_t* labels = nullptr;
    bool mean_there = true, labels_there = true;
  };

  /// What `profile` asks a run for.
  struct Times {
    double* seconds = nullptr;                // of each layer, summed over threads
    std::vector<LayerSpan>* spans = nullptr;  // null: not wanted
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  };

  NetworkText text;
  NetworkOptions options;
  Machine machine;
  network::Graph graph;
  network::Conversion conversion;
  network::PixelsOfValues pixels_of_values;
  std::vector<Step> steps;
  std::vector<LayerReport> reports;
  std::shared_ptr<Threads> threads;  // of the host: conversions, and all kernels on the CPU
  Index classes = 0, parameters = 0, input_values = 0;
  /// The first step reads the images as they come, u8 too.
  bool reads_images = false;
  /// All of it is one step that takes any number of images at once.
  bool any_n = false;
  /// Images of one pass through the steps, at most; `any_n` takes more.
  Index at_once = 1;

  network::MemoryPlan memory_plan;
  mutable Tensor memory;  // of all tensors between steps, on the device
  // Of the step that runs, on a GPU: runs follow each other, on whatever stream, and so do steps.
  // On the CPU a step's plan has its own.
  mutable Tensor workspace;
  mutable Tensor device_outputs;  // mean and labels of a batch, on a GPU
  Tensor device_tables;           // values of pixels [C][256], or mean and std [2][C], on a GPU
  // Made by the first run that needs them.
  mutable std::unique_ptr<network::HostPath> host_path;  // of a GPU
  mutable Tensor own_pixels;                             // of a chunk of values, on the CPU
  mutable std::vector<std::uint8_t> are_pixels;          // whether those of an image are
  // In page-locked memory, all there: the images of a small run from the host.
  mutable const void* staged = nullptr;
  mutable std::unique_ptr<Impl> of_values;  // the same layers, for x' that are no pixels' values
  mutable Claim busy;

  Impl(network::Model model, const NetworkOptions& options_);
  Impl(NetworkText text_, const NetworkOptions& options_, network::Graph graph_);
  /// Throws Error also where memory runs out.
  static std::unique_ptr<Impl> make(const std::string& folder, const NetworkOptions& options);
  static std::unique_ptr<Impl> make(const NetworkText& text, const NetworkParameters& parameters,
                                    const NetworkOptions& options);

  bool on_gpu() const { return machine.device.kind == DeviceKind::cuda; }
  const network::Layer& layer(std::size_t i) const { return graph.layers[i]; }
  const Step& last() const { return steps.back(); }
  Index steps_of(const Step& step) const { return step.timed ? graph.steps : 1; }

  // Building.
  void build(bool images_as_they_are);
  PlanOptions plan_options() const;
  std::size_t row_from(std::size_t first) const;
  OwnedChain chain_of(std::size_t first, std::size_t count, bool images_as_they_are) const;
  Step make_step(const OwnedChain& chain, std::size_t first, std::string_view kernel) const;
  std::vector<float> values_of_first() const;
  std::vector<Parameters> parameters_of(const Step& step, const std::vector<float>& values) const;
  void report(const Step& step, const std::string& why);
  Index tensor_of(Index number) const;
  void lay_out_memory();
  void find_input(std::size_t i, std::vector<network::Lifetime>& lives);

  // Running. Pointers are on the network's device unless they say host.
  class HostRun;
  std::string check(const Operands& operands) const;
  /// Images that are x' in place of pixels.
  bool of_other_type(const ConstTensorView& images) const { return images.dtype != text.dtype; }
  /// Such images, where the first step reads pixels.
  bool turns_back(const ConstTensorView& images) const {
    return of_other_type(images) && reads_images;
  }
  Outputs outputs_at(const Operands& operands, Index first) const;
  std::byte* tensor(Index number) const;
  Status run_step(const Step& step, Index n, const void* x, void* y, std::int32_t* labels,
                  float* const* inner, Times* times, Stream stream) const;
  /// Waits for the stream, and adds what the step took since `begin`; `adds_seconds`: not only its
  /// span.
  void add_since(std::chrono::steady_clock::time_point begin, const Step& step, Index n,
                 bool adds_seconds, Stream stream, Times& times) const;
  const void* input_of(const void* images, DType type, Index n, Stream stream) const;
  void put(const Part& part, Index n, const void* from, void* to, Stream stream) const;
  void give_outputs(Index n, const Outputs& outputs, Stream stream) const;
  Status run_chunk(const void* images, DType type, Index n, const Outputs& outputs, Times* times,
                   Stream stream) const;
  Status run_there(const Operands& operands, Times* times, Stream stream) const;
  Status run_by_host(const Operands& operands, Times* times, Stream stream) const;
  Status run_on_cpu(const Operands& operands, Times* times) const;
  Status run_odd(const Operands& operands, std::vector<Index> odd, Times* times,
                 Stream stream) const;
  Status run(const Operands& operands, Times* times, Stream stream) const;
  void warm(Index n) const;
  class Trace;
  std::vector<Tensor> trace(const ConstTensorView& images) const;

  static constexpr const char* is_running =
      "this network is running already, expected one run at a time. Load a second Network for a "
      "second caller.";
  /// Gives a claim back at the end of a scope.
  struct Busy {
    Claim& claim;
    ~Busy() { claim.give(); }
  };
};

/// Where value `values` of a dense view lies.
inline const std::byte* bytes_at(const ConstTensorView& view, Index values) {
  return static_cast<const std::byte*>(view.data) +
         values * static_cast<Index>(size_of(view.dtype));
}

}  // namespace convoy
