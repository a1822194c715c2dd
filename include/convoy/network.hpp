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
  int line = 0;                // of network.txt; 0 where there is none
};

/// What a network computes, without weights: network.txt, parsed (docs/network.md has the format),
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

/// Parses the text and derives every layer's shape. Throws Error "NAME:LINE: ..." that says what
/// was found and what was expected. `name` is the file's name as errors shall say it.
CONVOY_API NetworkText parse_network(std::string_view text, const std::string& name);

/// Parameters of a network in memory, by the names that their files have: "conv1.weight", as in
/// PyTorch's state_dict. f32, f16 or bf16 views on the host; "conv1.weight" [K,C/groups,R,S], a
/// linear layer's [K,C], "conv1.bias" [K], a batch-norm's weight, bias, running_mean and
/// running_var [K] each; with any strides, so that a permuted view will do, or flattened in that
/// order. Further ones are not looked at.
using NetworkParameters = std::map<std::string, TensorView>;

struct NetworkOptions {
  Device device{};
  int threads = 0;    // as in PlanOptions
  Index batch = 256;  // images that layers outside the spike kernels handle at once; 1 to 2^31 - 1
  /// Use the kernels for 0/1 inputs where they fit. Off: every layer is a plan.
  bool spike_kernels = true;
};

/// What a network does for a layer, for people.
struct LayerReport {
  std::string name, stage, kernel;
  std::string fusion;  // whether it runs in one kernel with the layers behind it, and why
  Index parameters = 0;
  Index macs = 0;  // multiply-adds of one image, all steps
};

/// A network with its weights. Making one reads files and allocates and may throw Error, also where
/// memory runs out; running does neither. One run at a time: a second one meanwhile fails with a
/// status that says so; a move and the destructor may not overlap a run. What plan.hpp says of a
/// Plan that was moved from, of the end of the program and of forked children holds here too.
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

  const NetworkText& text() const;
  Index classes() const;  // values of the last layer
  Index parameters() const;
  int threads() const;
  const std::vector<LayerReport>& layers() const;

  /// Each on the host or on the network's device, none over another: images [N,H,W] or [N,H,W,C],
  /// dense, of the type that network.txt says, any N ≥ 0 (their data may be null where N is 0);
  /// logits [N,classes] f32 or
  /// empty: the mean over the steps, of a last layer that is no vector its values in the order H,
  /// W, C; labels [N] i32 or empty: the index of the largest logit, the first of equals. Bits of an
  /// image do not depend on N, its place, threads.
  ///
  /// On a GPU all work is enqueued on the stream. What is on the host is complete on return; where
  /// images and outputs are on the device, nothing waits, and no later run may begin on another
  /// stream before this one is done.
  Status run(const TensorView& images, const TensorView& logits, const TensorView& labels,
             Stream stream = {}) const noexcept;

  /// As `run`, and adds the seconds spent in each layer, summed over threads, to seconds[i].
  Status profile(const TensorView& images, std::vector<double>& seconds) const;

  /// Every layer's output for these images (few: all is kept): [T,N,P',Q',K] f32, T is 1 where the
  /// output is the same in each step. For checks against another implementation. Throws Error,
  /// also while the network is running.
  std::vector<Tensor> trace(const TensorView& images) const;

 private:
  struct Impl;
  const Impl& impl() const;  // throws Error where there is none
  std::unique_ptr<Impl> impl_;
};

}  // namespace convoy
