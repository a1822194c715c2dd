/// @file
/// Networks: layers with their weights, read from a model folder or given in memory, that are run
/// over images. docs/use/networks.md shows how to use one, docs/use/model-folders.md has the
/// format.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/plan.hpp"

namespace convoy {

/// @cond
namespace network {
struct Program;
}
/// @endcond

/// A layer of a network: a line of network.txt, or one that you fill in. Give the stage's filters,
/// strides and riders. The network fills in type, n, h, w, c, t and hold.
struct NetworkLayer {
  /// For example "conv1"; its parameters are conv1.weight and conv1.bias. UTF-8 without control
  /// characters. docs/use/model-folders.md has the names of files.
  std::string name = {};
  Stage stage = {};      ///< the stage; a linear layer, which reads a vector, has k and riders only
  bool flatten = false;  ///< no stage: [H,W,C] becomes one vector, in PyTorch's order (C,H,W)
  /// The prefix of a batch-norm's parameters, which are folded into the weights; empty: none.
  std::string batchnorm = {};
  /// The names of the layers that it reads; their channels are put side by side in this order.
  /// Empty: the layer before it.
  std::vector<std::string> from = {};
  int line = 0;  ///< its line in network.txt; 0: it was not read from a file
};

/// The description of a network without weights: the content of a network.txt, which
/// parse_network() reads, or filled in by you. docs/use/model-folders.md explains each part.
///
///     const NetworkText text{.dtype = DType::u8, .h = 28, .c = 1, .mean = {0.5F}, .std = {0.5F},
///                            .layers = {{.name = "conv1",
///                                        .stage = {.k = 8, .r = 5, .bias = true, .act = relu,
///                                                  .pool = max_pool(2)}},
///                                       {.flatten = true},
///                                       {.name = "fc1", .stage = {.k = 10, .bias = true}}}};
struct NetworkText {
  DType dtype = DType::u8;  ///< type of the images: u8, f32, f16 or bf16
  Index h = 0,              ///< height of the images
      w = 0,                ///< width of the images; 0: that of h
      c = 0;                ///< channels of the images
  /// The numbers of the normalisation: one per channel, one for all channels, or empty (mean 0, std
  /// 1). u8 pixels become (x/255 - mean)/std, f32 pixels (x - mean)/std.
  std::vector<float> mean = {},
                     std = {};  ///< the divisors of the normalisation, like `mean`; not 0
  Index steps = 1;              ///< time steps, 1 to 65536; each step reads the same image
  std::vector<NetworkLayer> layers = {};  ///< the layers in order, at most 1000

  /// The type that the layers compute in: that of the images, or f32 for u8 images.
  DType layer_type() const { return dtype == DType::u8 ? DType::f32 : dtype; }
};

/// Parses the content of a network.txt, at most 1 MiB, and derives the shape of each layer. `name`
/// is the file's name in messages. Throws Error "NAME:LINE: ..." with the text found and the text
/// expected.
///
///     const NetworkText text = parse_network("input u8:h28c1\nconv1 k8r5+relu\n", "mine");
///     shapes_of(text.layers[0].stage).out_h  // 24
CONVOY_API NetworkText parse_network(std::string_view text, const std::string& name);

/// The parameters of a network in memory, by the names of PyTorch's state_dict: "conv1.weight".
///
/// - The views are f32, f16 or bf16 and on the host, with any strides.
/// - A convolution's weight is [K,C/groups,R,S], a linear layer's weight is [K,C], a bias is [K]. A
///   batch-norm has weight, bias, running_mean and running_var, each [K].
/// - A contiguous or strided view of rank 1 with the values in that order is taken too.
/// - Entries with other names are ignored. A bias of a layer without bias is an error.
using NetworkParameters = std::map<std::string, ConstTensorView>;

/// The options of a Network. None changes a bit of the results, except `device`, `spike_kernels`
/// and `weights`.
struct NetworkOptions {
  Device device{};  ///< the device that computes
  int threads = 0;  ///< see PlanOptions::threads
  /// The number of images, 1 to 2^31 - 1, that pass through the layers at once. The memory between
  /// the layers grows with the images of a run, up to this number; a run of more images is done in
  /// parts. 0: at most 256, and fewer if two neighbouring layers would take more than 256 MiB, or
  /// an eighth of a GPU's memory.
  Index batch = 0;
  /// Use the kernels for inputs of 0 and 1 if they fit. If false, each layer is run by a plan.
  bool spike_kernels = true;
  /// f16: round all weights to f16 when the network is loaded; the layers must compute in f32. On a
  /// GPU, spiking networks then take half the work on Tensor Cores. f32: keep the weights.
  DType weights = DType::f32;
  CallerThreads caller_threads = nullptr;  ///< see PlanOptions::caller_threads
};

/// The report of a network on one of its layers.
struct LayerReport {
  std::string name;      ///< the layer's name
  std::string stage;     ///< the layer's stage as text, for one image
  std::string kernel;    ///< the kernel's name; the layers of one segment have the same kernel
  std::string fusion;    ///< whether one kernel runs it with the layers after it, and the reason
  Index parameters = 0;  ///< number of weights and biases, with batch-norms folded in
  Index macs = 0;        ///< multiply-adds of one image, all time steps
};

/// A part of a profiled run: one kernel that ran one or more neighbouring layers. Times are in
/// seconds since the run began.
struct LayerSpan {
  std::size_t first = 0,  ///< the first layer's index in Network::layers
      count = 1;          ///< the number of layers
  Index images = 0;       ///< the number of images
  double begin = 0,       ///< when the kernel began
      end = 0;            ///< when the kernel ended
};

/// An input or an output of a network.
struct Port {
  std::string name;              ///< "images" of a network.txt, or as GraphBuilder was told
  DType dtype = DType::f32;      ///< type of the elements
  std::vector<Index> axes = {};  ///< of one image: {H,W,C}, or {C} of a vector
  /// The number of time steps that a run gives, [T,N,...], at least 2; 0: the tensor is [N,...], of
  /// a value without time steps or of a network with one step.
  Index steps = 0;
};

/// An input of a run, by its name.
struct NamedInput {
  std::string_view name;  ///< the name of a Port
  ConstTensorView view;   ///< contiguous, of the port's type and shape with N in front
};
/// An output of a run, by its name.
struct NamedOutput {
  std::string_view name;  ///< the name of a Port
  TensorView view;        ///< contiguous, of the port's type and shape with N in front
};

/// A network with its weights, ready to run.
///
///     const Network network("models/fashion-scnn");
///     std::vector<std::int32_t> labels(n);
///     network.run(TensorView::of(pixels.data(), {n, 28, 28}), {},
///                 TensorView::of(labels.data(), {n})).or_throw();
///
/// **Errors and memory.** The constructors read files and allocate. They throw Error if a file or a
/// parameter is missing or wrong, with its name, if this machine lacks the device, and if memory
/// runs out. run() never throws. The first runs allocate memory that later runs reuse; warm() does
/// most of it ahead.
///
/// **Threads.** Any number of threads may run a network at the same time. Each run that is under
/// way has memory between the layers of its own, which later runs reuse; on a GPU, runs on one
/// stream share it. With 64 of them under way, a further run returns StatusCode::busy. A move and
/// the destructor may not overlap a run.
///
/// Moves, the end of the process and fork() are as with a Plan.
class CONVOY_API Network {
 public:
  /// Reads a model folder. Throws Error as described above.
  explicit Network(const std::string& folder, const NetworkOptions& options = {});
  /// Takes a network from memory, with the checks and the results of a folder. The views may be
  /// freed after the constructor. Throws Error as described above.
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
  /// Frees the network's memory. It may not overlap a run.
  ~Network();
  /// Takes the network over; the source is empty afterwards.
  Network(Network&&) noexcept;
  /// Frees this network and takes the other one over, which is empty afterwards.
  Network& operator=(Network&&) noexcept;

  /// The inputs and the outputs, in order. Throws Error if the network was moved from, as the six
  /// functions after them.
  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;  ///< see inputs()
  /// The description, with the shape of each layer filled in. Throws Error if the network was made
  /// by a GraphBuilder.
  const NetworkText& text() const;
  /// The number of values of the first output per image: H*W*C.
  Index classes() const;
  /// The number of parameters of all layers.
  Index parameters() const;
  /// The number of images that pass through the layers at once, at most.
  Index batch() const;
  /// The number of host threads.
  int threads() const;
  /// A report per layer, in order, without flatten.
  const std::vector<LayerReport>& layers() const;

  /// Computes the network for N ≥ 0 images.
  ///
  /// - `images` are [N,H,W,C]. [N,H,W] is taken for one channel and [N,C] for images of one pixel.
  ///   They are contiguous and of the text's type. A network of u8 images also takes f32 images on
  ///   the host that are normalised already; docs/start/gpu.md tells how they are computed.
  /// - `logits`, if not empty, are f32 [N,classes()]: the mean over the time steps of the last
  ///   layer, in the order H, W, C.
  /// - `labels`, if not empty, are i32 [N]: the index of the largest logit, the first of equals.
  ///   The last layer must give a vector.
  ///
  /// Each is on the host or on the network's device, and none overlaps another. The bits of an
  /// image do not depend on N, on its position, on threads, or on the place of images and outputs.
  ///
  ///     std::vector<std::int32_t> labels(n);
  ///     network.run(TensorView::of(pixels.data(), {n, 28, 28}), {},
  ///                 TensorView::of(labels.data(), {n})).or_throw();
  ///
  /// On a GPU the work is enqueued on the stream; copies of images use a stream of the network.
  /// Outputs on the host are complete on return. If images and outputs are all on the GPU, the call
  /// does not wait, and a CUDA graph may capture it.
  ///
  /// The status is invalid_operand or busy before anything is written; moved_from; otherwise
  /// device_error, out_of_memory or internal_error. See StatusCode.
  Status run(const ConstTensorView& images, const TensorView& logits, const TensorView& labels,
             Stream stream = {}) const noexcept;

  /// Computes the named outputs of N ≥ 0 images; an output that is not named is not given.
  ///
  /// Every input must be named. N is the same for all tensors. Each is on the host or on the
  /// network's device, and no output overlaps another tensor. Results and statuses are as of the
  /// run above.
  ///
  ///     network.run({{"images", x}}, {{"boxes", boxes}, {"scores", scores}}, {}).or_throw();
  Status run(std::span<const NamedInput> inputs, std::span<const NamedOutput> outputs,
             Stream stream) const noexcept;
  /// The same with lists in braces.
  Status run(std::initializer_list<NamedInput> inputs, std::initializer_list<NamedOutput> outputs,
             Stream stream) const noexcept {
    return run(std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()),
               stream);
  }

  /// Does ahead all that the first run would do once: starts threads, loads code, allocates
  /// streams, page-locked and device memory for runs from or to the host. It runs `n` images of
  /// zeros, then one image; give the number of images of your later runs, at least 1. Throws Error
  /// if such a run fails, also if the network is busy. docs/start/gpu.md tells which work warm()
  /// moves out of a timed region.
  ///
  ///     network.warm(10000);
  void warm(Index n) const;

  /// Runs the network without outputs and measures its layers.
  ///
  /// It adds the seconds of layer i of layers(), summed over threads, to seconds[i], after it
  /// resized the vector. A layer that one kernel runs together with the layer before it may get 0.
  /// A layer that reads several layers also gets the time to put their channels side by side. If
  /// `spans` is not null, it receives the parts of the run, in the order of time.
  ///
  /// On a GPU it waits for each kernel, so that a profiled run takes longer; the time of a small
  /// kernel is mostly this wait. Returns the statuses of run(), and throws Error if the network was
  /// moved from.
  ///
  ///     std::vector<double> seconds;
  ///     network.profile(images, seconds).or_throw();
  Status profile(const ConstTensorView& images, std::vector<double>& seconds,
                 std::vector<LayerSpan>* spans = nullptr) const;

  /// The output of each layer of layers(), for checks against another implementation.
  ///
  /// Takes from 1 to NetworkOptions::batch images of the input's type. Each Tensor is
  /// [T,N,P',Q',K], f32, on the host. T is 1 if the output is equal in each step or is the mean of
  /// the steps. All outputs are in memory at once. Throws Error if the images are wrong, if the
  /// network was moved from, and if memory runs out.
  ///
  ///     const Tensor conv1 = std::move(network.trace(images).front());
  std::vector<Tensor> trace(const ConstTensorView& images) const;

 private:
  friend class GraphBuilder;
  friend const network::Program& program_of(const Network& network);
  struct Impl;
  explicit Network(std::unique_ptr<Impl> made);
  const Impl& impl() const;  // throws Error if the network was moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace convoy
