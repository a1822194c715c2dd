// Networks: chains of stages with their weights, from a model folder or from memory, run over
// images.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/plan.hpp"

namespace convoy {

/// A layer: a line of network.txt, or one written by hand. Of the stage, the filters, strides and
/// riders count; its type, n, h, w, c, t and hold are filled in by the network.
struct NetworkLayer {
  std::string name = {};       // "conv1": its parameters are conv1.weight and conv1.bias
  Stage stage = {};            // after flatten a linear layer: k alone, no r
  bool flatten = false;        // no stage: [H,W,C] becomes one vector, in PyTorch's order (C,H,W)
  std::string batchnorm = {};  // prefix of a batch-norm's parameters, folded in; empty: none
  /// The layers that it reads, their channels one behind the other; empty: the one before it.
  std::vector<std::string> from = {};
  int line = 0;  // of network.txt; 0 where there is none
};

/// What a network computes, without weights: network.txt, parsed (docs/use/networks.md has the format),
/// or written by hand:
///
///     const NetworkText text{.dtype = DType::u8, .h = 28, .c = 1, .mean = {0.5F}, .std = {0.5F},
///                            .layers = {{.name = "conv1",
///                                        .stage = {.k = 8, .r = 5, .bias = true, .act = relu,
///                                                  .pool = max_pool(2)}},
///                                       {.flatten = true},
///                                       {.name = "fc1", .stage = {.k = 10, .bias = true}}}};
struct NetworkText {
  DType dtype = DType::u8;    // of the images: u8, f32, f16 or bf16
  Index h = 0, w = 0, c = 0;  // w 0: as h
  // Of each channel, or one of all, or none. x' = (x/255 - mean)/std of u8, (x - mean)/std of f32.
  std::vector<float> mean = {}, std = {};
  Index steps = 1;  // 1 to 65536; the same image in every step
  std::vector<NetworkLayer> layers = {};

  /// What the layers compute in: the images' type, f32 for u8.
  DType layer_type() const { return dtype == DType::u8 ? DType::f32 : dtype; }
};

/// Parses the text (at most 1 MiB) and derives every layer's shape. Throws Error "NAME:LINE: ..."
/// that says what was found and what was expected. `name` is the file's name as errors shall say
/// it.
///
///     const NetworkText text = parse_network("input u8:h28c1\nconv1 k8r5+relu\n", "mine");
///     shapes_of(text.layers[0].stage).out_h  // 24
CONVOY_API NetworkText parse_network(std::string_view text, const std::string& name);

/// Parameters of a network in memory, by the names that their files have: "conv1.weight", as in
/// PyTorch's state_dict. f32, f16 or bf16 views on the host; "conv1.weight" [K,C/groups,R,S], a
/// linear layer's [K,C], "conv1.bias" [K], a batch-norm's weight, bias, running_mean and
/// running_var [K] each; with any strides, so that a permuted view will do, or flattened in that
/// order. Further ones are not looked at, but a bias that its layer leaves out is an error.
using NetworkParameters = std::map<std::string, TensorView>;

/// How to run a network. None of it changes a bit of the results but `device`, `spike_kernels` and
/// `weights`.
struct NetworkOptions {
  Device device{};
  int threads = 0;  // as in PlanOptions
  /// Images that layers outside the spike kernels handle at once, 1 to 2^31 - 1. Memory between the
  /// layers grows with it; runs of more images go in parts.
  Index batch = 256;
  /// Use the kernels for 0/1 inputs where they fit. Off: every layer is a plan.
  bool spike_kernels = true;
  /// f16: weights are rounded to f16 numbers first, those of layers that compute in f32 as well. On
  /// a GPU spiking networks then take half the work on Tensor Cores. f32: as they are.
  DType weights = DType::f32;
  CallerThreads caller_threads = nullptr;  // as in PlanOptions
};

/// What a network does for a layer, for people.
struct LayerReport {
  std::string name;
  std::string stage;     // as text, of one image
  std::string kernel;    // its name, as Plan::kernel; layers of one segment have the same
  std::string fusion;    // whether it runs in one kernel with the layers behind it, and why
  Index parameters = 0;  // weights and biases, batch-norms folded in
  Index macs = 0;        // multiply-adds of one image, all steps
};

/// A part of a profiled run: the kernel that runs layers [first, first + count) of
/// `Network::layers()`, for so many images, from `begin` to `end`, in seconds since the run began.
struct LayerSpan {
  std::size_t first = 0, count = 1;
  Index images = 0;
  double begin = 0, end = 0;
};

/// A network with its weights. Making one reads files and allocates and may throw Error (a file or
/// a parameter that is missing or wrong, by its name; a device that is not here), also where memory
/// runs out; running throws nothing, and allocates only what `warm` says. One run at a time: a
/// second one meanwhile fails with a status that says so; a move and the destructor may not overlap
/// a run. What plan.hpp says of a Plan that was moved from, of the end of the program and of forked
/// children holds here too.
class CONVOY_API Network {
 public:
  /// From a model folder.
  explicit Network(const std::string& folder, const NetworkOptions& options = {});
  /// From memory; the same checks as of a folder, and the same bits. The views may be freed
  /// afterwards.
  ///
  ///     const NetworkText text = parse_network("input u8:h28w28c1 mean(0.5) std(0.5)\n"
  ///                                            "conv1 k8r5+bias+relu+max2\n"
  ///                                            "flatten\n"
  ///                                            "fc1 k10+bias\n",
  ///                                            "mine");
  ///     const Network network(text, {{"conv1.weight", TensorView::of(w1, {8, 1, 5, 5})},
  ///                                  {"conv1.bias", TensorView::of(b1, {8})},
  ///                                  {"fc1.weight", TensorView::of(w2, {10, 1152})},
  ///                                  {"fc1.bias", TensorView::of(b2, {10})}});
  Network(const NetworkText& text, const NetworkParameters& parameters,
          const NetworkOptions& options = {});
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;

  // Of a network that was moved from they throw Error. References stay with the one it was moved
  // to.
  const NetworkText& text() const;                 // with every shape filled in
  Index classes() const;                           // values of the last layer of one image, H*W*C
  Index parameters() const;                        // of all layers
  int threads() const;                             // of the host
  const std::vector<LayerReport>& layers() const;  // without flatten

  /// Computes images [N,H,W,C], or [N,H,W] of one channel, or [N,C] of one pixel: dense, of the
  /// text's type, any N ≥ 0 (their data may be null where N is 0). Writes, where not empty,
  ///   logits [N,classes] f32: the mean over the steps of the last layer, in the order H, W, C;
  ///   labels [N] i32: the index of the largest logit, the first of equals. Only where the last
  ///   layer gives a vector.
  /// Each on the host or on the network's device, none over another. Bits of an image do not depend
  /// on N, its place, threads, or where images and outputs lie.
  ///
  /// A network of u8 images also takes f32 images on the host: x', normalised already. Those whose
  /// values are all a pixel's give the bits of the u8 image; any other runs through layers that
  /// read f32, which are made when the first such image comes.
  ///
  ///     std::vector<std::int32_t> labels(n);
  ///     network.run(TensorView::of(pixels.data(), {n, 28, 28}), {},
  ///                 TensorView::of(labels.data(), {n})).or_throw();
  ///
  /// On a GPU all work is enqueued on the stream, but for copies of images, which a stream of the
  /// network's own does meanwhile. What is on the host is complete on return; it may be ordinary
  /// memory, or page-locked (PinnedTensor, or the caller's own), which is copied from directly.
  /// Where images and outputs are on the device, nothing waits, no later run may begin on another
  /// stream before this one is done, and the run may be captured in a CUDA graph.
  ///
  /// A failing status says what is wrong: invalid_operand and busy (another run, profile or trace
  /// is under way), before anything is written; moved_from; of a GPU device_error and
  /// out_of_memory.
  Status run(const TensorView& images, const TensorView& logits, const TensorView& labels,
             Stream stream = {}) const noexcept;

  /// Does before the first timed run what would else be a part of it: starts threads, loads code,
  /// makes the streams, page-locked and device memory that runs from or to the host need, and runs
  /// n images of zeros, then one. n: as many as a run is going to have, at least 1. Throws Error as
  /// `run` gives statuses. docs/use/networks.md says what it moves out of a timed region.
  ///
  ///     network.warm(10000);
  void warm(Index n) const;

  /// As `run` without outputs, and adds the seconds spent in each of `layers()`, summed over
  /// threads, to seconds[i]. A layer that a kernel runs with the one before it may get none; one
  /// that reads several layers gets the time to put their channels side by side. The statuses are
  /// those of `run`; throws Error where the network was moved from. Where `spans` is given, it also
  /// gets what ran when, in the order of time. On a GPU each kernel is waited for, so that a
  /// profiled run takes longer than another, and what small kernels take is mostly the wait.
  ///
  ///     std::vector<double> seconds;
  ///     network.profile(images, seconds).or_throw();
  Status profile(const TensorView& images, std::vector<double>& seconds,
                 std::vector<LayerSpan>* spans = nullptr) const;

  /// The output of each of `layers()` for these images, at least one and at most `batch` (few: all
  /// is kept): [T,N,P',Q',K] f32 on the host; T is 1 where the output is the same in each step, or
  /// is their mean. For checks against another implementation. Throws Error as `run` gives
  /// statuses, so also while the network is running.
  ///
  ///     const Tensor conv1 = std::move(network.trace(images).front());
  std::vector<Tensor> trace(const TensorView& images) const;

 private:
  struct Impl;
  const Impl& impl() const;  // throws Error where there is none
  std::unique_ptr<Impl> impl_;
};

}  // namespace convoy
