// A loaded network: which layers run as plans and which as chains of spike kernels, and running
// them.
#include "convoy/network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "io/file.hpp"
#include "network/load.hpp"
#include "network/spike_chain.hpp"

namespace convoy {
namespace {

using network::ChainSink;
using network::ChainSource;
using network::LayerWeights;
using network::SpikeChain;
using Clock = std::chrono::steady_clock;

/// The mean or std of a channel: there may be none, one for all, or one each.
float of_channel(const std::vector<float>& values, Index c, float none) {
  return values.empty() ? none : values[values.size() == 1 ? 0 : static_cast<std::size_t>(c)];
}

/// x' of every pixel value and channel, [C][256], by PyTorch's own operations in fp32.
std::vector<float> normalised_values(const NetworkText& text) {
  std::vector<float> values;
  for (Index c = 0; c < text.c; ++c) {
    const float mean = of_channel(text.mean, c, 0.0F), std = of_channel(text.std, c, 1.0F);
    for (int u = 0; u < 256; ++u) values.push_back((static_cast<float>(u) / 255.0F - mean) / std);
  }
  return values;
}

std::int32_t arg_max(const float* values, Index count) {
  return static_cast<std::int32_t>(std::max_element(values, values + count) - values);
}

TensorView with_images(float* data, std::vector<Index> shape, Index n) {
  shape[shape.size() - 4] = n;
  return {data, DType::f32, shape};
}

}  // namespace

struct Network::Impl {
  /// One step of a run: a plan for one layer, or a chain of layers.
  struct Segment {
    std::size_t first = 0, count = 1;  // of layers that have weights
    std::unique_ptr<Plan> plan;
    std::vector<float> bias;
    Index fold = 1;  // steps that the plan sees as further images, where it has no neuron
    std::unique_ptr<SpikeChain> chain;
    bool timed_out = false;   // output differs from step to step
    Index output_values = 0;  // of one image and step
  };

  NetworkText text;
  NetworkOptions options;
  std::vector<float> values;          // x' of pixel values
  std::vector<std::size_t> stages;    // layers that have weights
  std::vector<LayerWeights> weights;  // of all layers
  std::vector<Segment> segments;
  std::vector<LayerReport> reports;
  std::unique_ptr<Threads> threads;
  Index classes = 0, parameters = 0, input_values = 0;
  mutable Buffer<float> input, ping, pong, logits;
  mutable std::atomic_flag busy = ATOMIC_FLAG_INIT;

  Impl(const std::string& folder, const NetworkOptions& options_) : options(options_) {
    if (options.batch < 1)
      throw Error(fmt::format("batch {}: expected at least 1 image.", options.batch));
    if (options.threads < 0)
      throw Error(fmt::format("threads {}: expected a positive number, or 0 for every core.",
                              options.threads));
    if (options.device.kind != DeviceKind::cpu)
      throw Error(fmt::format("device {}: networks run on the cpu as yet. Use cpu.",
                              to_text(options.device)));
    const std::string file = folder + "/network.txt";
    const auto bytes = io::read_file(file);
    text = parse_network({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
    weights = network::load_weights(text, folder);
    values = normalised_values(text);
    input_values = text.h * text.w * text.c;
    threads = std::make_unique<Threads>(cpu_machine(options.threads).threads);
    for (std::size_t i = 0; i < text.layers.size(); ++i)
      if (!text.layers[i].flatten) stages.push_back(i);
    classes = stage(stages.size() - 1).k;
    build();
    weights.clear();
    make_buffers();
  }

  const NetworkLayer& layer(std::size_t i) const { return text.layers[stages[i]]; }
  const Stage& stage(std::size_t i) const { return layer(i).stage; }
  const LayerWeights& weights_of(std::size_t i) const { return weights[stages[i]]; }
  bool after_flatten(std::size_t i) const {
    return stages[i] > 0 && text.layers[stages[i] - 1].flatten;
  }
  bool linear(std::size_t i) const {
    for (std::size_t j = 0; j < stages[i]; ++j)
      if (text.layers[j].flatten) return true;
    return false;
  }
  bool last(std::size_t i) const { return i + 1 == stages.size(); }
  bool spikes_reach(std::size_t i) const { return i > 0 && stage(i - 1).act.is_neuron(); }
  const float* bias_of(std::size_t i) const {
    return weights_of(i).bias.empty() ? nullptr : weights_of(i).bias.data();
  }

  /// The first layer as the kernel for u8 images sees it.
  Stage image_stage() const {
    Stage s = stage(0);
    s.dtype = DType::u8;
    s.hold = true;
    return s;
  }
  bool takes_images(std::size_t i) const {
    return i == 0 && text.dtype == DType::u8 && !linear(0) &&
           cpu::SpikeFirst::refusals(image_stage(), weights_of(0).w.data(), bias_of(0),
                                     values.data())
               .empty();
  }
  bool takes_spikes(std::size_t i) const {
    if (!spikes_reach(i)) return false;
    if (!linear(i)) return cpu::SpikeConv::refusals(stage(i)).empty();
    return cpu::SpikeLinear::refusals(stage(i)).empty() && (stage(i).act.is_neuron() || last(i));
  }

  void build() {
    bool timed = false;
    for (std::size_t i = 0; i < stages.size();) {
      std::size_t end = i;
      if (options.spike_kernels) {
        if (takes_images(i) || takes_spikes(i)) ++end;
        while (end > i && end < stages.size() && takes_spikes(end)) ++end;
      }
      Segment segment = end > i ? make_chain(i, end) : make_plan(i, timed);
      const Shapes shapes = shapes_of(stage(i + segment.count - 1));
      segment.output_values = shapes.out_h * shapes.out_w * stage(i + segment.count - 1).k;
      for (std::size_t j = i; j < i + segment.count; ++j) timed |= stage(j).act.is_neuron();
      segment.timed_out =
          timed && !(segment.chain && !stage(i + segment.count - 1).act.is_neuron());
      i += segment.count;
      segments.push_back(std::move(segment));
    }
  }

  void report(std::size_t i, const std::string& kernel) {
    LayerReport r;
    r.name = layer(i).name;
    r.stage = to_text(stage(i));
    r.kernel = kernel;
    r.parameters = static_cast<Index>(weights_of(i).w.size() + weights_of(i).bias.size());
    parameters += r.parameters;
    bool varies = false;
    for (std::size_t j = 0; j < i; ++j) varies |= stage(j).act.is_neuron();
    r.macs = shapes_of(stage(i)).macs * (varies ? text.steps : 1);
    reports.push_back(std::move(r));
  }

  Segment make_plan(std::size_t i, bool timed) {
    Segment segment;
    segment.first = i;
    Stage s = stage(i);
    segment.fold = timed && !s.act.is_neuron() ? text.steps : 1;
    s.n = options.batch * segment.fold;
    PlanOptions plan_options;
    plan_options.device = options.device;
    plan_options.threads = threads->count();
    const LayerWeights& w = weights_of(i);
    segment.plan = std::make_unique<Plan>(
        s, TensorView::of(w.w.data(), {s.k, s.r, s.s, s.c / s.groups}), plan_options);
    segment.bias = w.bias;
    report(i, segment.plan->kernel());
    return segment;
  }

  /// The layout of what layer i reads from layer i-1, with the border that it wants.
  cpu::SpikeLayout layout_between(std::size_t i, bool increments) const {
    const Shapes before = shapes_of(stage(i - 1));
    return {before.out_h, before.out_w, stage(i - 1).k, linear(i) ? Padding(0) : stage(i).pad,
            increments};
  }

  /// Columns for every bit of a layout, from the columns [H,W,C] of a linear layer.
  static std::vector<float> columns_of_bits(const std::vector<float>& w, Index k,
                                            const cpu::SpikeLayout& layout) {
    const Index pixels = layout.h * layout.w, bits = layout.bytes() * 8;
    std::vector<float> result(static_cast<std::size_t>(k * pixels * bits), 0.0F);
    for (Index row = 0; row < k * pixels; ++row)
      std::copy_n(w.begin() + row * layout.c, layout.c, result.begin() + row * bits);
    return result;
  }

  Segment make_chain(std::size_t first, std::size_t end) {
    Segment segment;
    segment.first = first;
    segment.count = end - first;
    std::vector<SpikeChain::Layer> layers;
    const cpu::SpikeLayout source =
        takes_images(first) ? cpu::SpikeLayout{} : layout_between(first, false);
    cpu::SpikeLayout in = source;
    for (std::size_t i = first; i < end; ++i) {
      const Stage& s = stage(i);
      const LayerWeights& w = weights_of(i);
      SpikeChain::Layer made;
      made.k = s.k;
      made.mean = !s.act.is_neuron();
      const bool images = takes_images(i);
      if (!made.mean) {
        const bool increments = images && text.steps == 2;
        const Shapes shapes = shapes_of(s);
        made.output = i + 1 < end
                          ? layout_between(i + 1, increments)
                          : cpu::SpikeLayout{shapes.out_h, shapes.out_w, s.k, {}, increments};
      }
      if (images) {
        made.first = std::make_unique<cpu::SpikeFirst>(image_stage(), w.w.data(), bias_of(i),
                                                       values.data(), made.output);
        report(i, "spike_first");
      } else if (linear(i)) {
        const auto columns = columns_of_bits(w.w, s.k, in);
        made.linear =
            std::make_unique<cpu::SpikeLinear>(s, text.steps, columns.data(), bias_of(i), in);
        report(i, "spike_linear");
      } else {
        made.conv = std::make_unique<cpu::SpikeConv>(s, w.w.data(), bias_of(i), in, made.output);
        report(i, "spike_conv");
      }
      in = made.output;
      layers.push_back(std::move(made));
    }
    segment.chain = std::make_unique<SpikeChain>(std::move(layers), source, input_values,
                                                 text.steps, threads->count());
    return segment;
  }

  /// A network that is one chain from images to means takes any number of images at once.
  bool one_chain() const {
    return segments.size() == 1 && segments[0].chain && !segments[0].timed_out &&
           text.dtype == DType::u8 && takes_images_built;
  }
  bool takes_images_built = false;

  void make_buffers() {
    takes_images_built = !reports.empty() && reports[0].kernel == "spike_first";
    if (one_chain()) return;
    Index largest = 0;
    for (const Segment& segment : segments)
      largest = std::max(largest, segment.output_values * (segment.timed_out ? text.steps : 1));
    if (!takes_images_built)
      input = Buffer<float>(static_cast<std::size_t>(options.batch * input_values));
    ping = Buffer<float>(static_cast<std::size_t>(options.batch * largest));
    pong = Buffer<float>(static_cast<std::size_t>(options.batch * largest));
    logits = Buffer<float>(static_cast<std::size_t>(options.batch * classes));
  }

  std::string check(const TensorView& images, const TensorView& out,
                    const TensorView& labels) const;
  Status run_plan(const Segment& segment, Index n, float* x, float* y) const noexcept;
  Status run_batch(Index n, const TensorView& images, Index first, float* mean,
                   double* seconds) const noexcept;
  Status run(const TensorView& images, const TensorView& out, const TensorView& labels,
             double* seconds) const noexcept;
  const float* dense_input(Index n, const TensorView& images, Index first) const;
};

std::string Network::Impl::check(const TensorView& images, const TensorView& out,
                                 const TensorView& labels) const {
  const std::string wanted = fmt::format("{}[N,{},{},{}]{}", name(text.dtype), text.h, text.w,
                                         text.c, text.c == 1 ? " (or without the last axis)" : "");
  const bool shape =
      images && images.dtype == text.dtype && images.contiguous() && images.device == Device{} &&
      (images.rank == 4 || (images.rank == 3 && text.c == 1)) && images.shape[1] == text.h &&
      images.shape[2] == text.w && (images.rank == 3 || images.shape[3] == text.c);
  if (!shape)
    return fmt::format("images: {}, expected {}, dense, on the host.", describe(images), wanted);
  const Index n = images.shape[0];
  if (out && (out.dtype != DType::f32 || out.rank != 2 || out.shape[0] != n ||
              out.shape[1] != classes || !out.contiguous()))
    return fmt::format("logits: {}, expected f32[{},{}], dense.", describe(out), n, classes);
  if (labels && (labels.dtype != DType::i32 || labels.rank != 1 || labels.shape[0] != n ||
                 !labels.contiguous()))
    return fmt::format("labels: {}, expected i32[{}], dense.", describe(labels), n);
  return {};
}

const float* Network::Impl::dense_input(Index n, const TensorView& images, Index first) const {
  if (text.dtype == DType::f32 && text.mean.empty() && text.std.empty())
    return static_cast<const float*>(images.data) + first * input_values;
  float* const to = input.data();
  const Index c = text.c;
  if (text.dtype == DType::u8) {
    const auto* const from = static_cast<const std::uint8_t*>(images.data) + first * input_values;
    for (Index i = 0; i < n * input_values; ++i)
      to[i] = values[static_cast<std::size_t>(i % c * 256 + from[i])];
  } else {
    const auto* const from = static_cast<const float*>(images.data) + first * input_values;
    for (Index i = 0; i < n * input_values; ++i)
      to[i] = (from[i] - of_channel(text.mean, i % c, 0.0F)) / of_channel(text.std, i % c, 1.0F);
  }
  return to;
}

Status Network::Impl::run_plan(const Segment& segment, Index n, float* x, float* y) const noexcept {
  const Stage& s = segment.plan->stage();
  Operands operands;
  operands.x = with_images(x, x_shape(s), n * segment.fold);
  operands.y = with_images(y, y_shape(s), n * segment.fold);
  if (!segment.bias.empty())
    operands.bias = TensorView::of(segment.bias.data(), {static_cast<Index>(segment.bias.size())});
  return segment.plan->run(operands);
}

/// One batch through every segment; mean is [n,classes].
Status Network::Impl::run_batch(Index n, const TensorView& images, Index first, float* mean,
                                double* seconds) const noexcept {
  const auto* const pixels = static_cast<const std::uint8_t*>(images.data) + first * input_values;
  float* x = takes_images_built ? nullptr : const_cast<float*>(dense_input(n, images, first));
  float* y = ping.data();
  for (const Segment& segment : segments) {
    const auto begin = Clock::now();
    if (segment.plan) {
      const Status status = run_plan(segment, n, x, y);
      if (!status.ok()) return Status(layer(segment.first).name + ": " + status.message());
      if (seconds)
        seconds[segment.first] +=
            std::chrono::duration<double>(Clock::now() - begin).count() * threads->count();
    } else {
      const ChainSource source{pixels, x};
      const ChainSink sink{segment.timed_out ? nullptr : y, nullptr,
                           segment.timed_out ? y : nullptr};
      segment.chain->run(*threads, n, source, sink, seconds ? seconds + segment.first : nullptr);
    }
    x = y;
    y = y == ping.data() ? pong.data() : ping.data();
  }
  const Index values_of_step = n * classes, steps = segments.back().timed_out ? text.steps : 1;
  for (Index i = 0; i < values_of_step; ++i) {
    float sum = x[i];
    for (Index t = 1; t < steps; ++t) sum += x[t * values_of_step + i];
    mean[i] = steps > 1 ? sum / static_cast<float>(steps) : sum;
  }
  return {};
}

Status Network::Impl::run(const TensorView& images, const TensorView& out, const TensorView& labels,
                          double* seconds) const noexcept {
  const std::string wrong = check(images, out, labels);
  if (!wrong.empty()) return Status(wrong);
  if (busy.test_and_set(std::memory_order_acquire))
    return Status("this network is running already. Load a second one for a second caller.");
  const Index n = images.shape[0];
  auto* const label = static_cast<std::int32_t*>(labels.data);
  auto* const logit = static_cast<float*>(out.data);
  Status status;
  if (one_chain()) {
    if (n > 0)
      segments[0].chain->run(*threads, n, {static_cast<const std::uint8_t*>(images.data), nullptr},
                             {logit, label, nullptr}, seconds);
  } else {
    for (Index first = 0; first < n && status.ok(); first += options.batch) {
      const Index count = std::min(options.batch, n - first);
      float* const mean = logit ? logit + first * classes : logits.data();
      status = run_batch(count, images, first, mean, seconds);
      for (Index i = 0; label && status.ok() && i < count; ++i)
        label[first + i] = arg_max(mean + i * classes, classes);
    }
  }
  busy.clear(std::memory_order_release);
  return status;
}

Network::Network(const std::string& folder, const NetworkOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}
Network::~Network() = default;
Network::Network(Network&&) noexcept = default;
Network& Network::operator=(Network&&) noexcept = default;

const NetworkText& Network::text() const {
  return impl_->text;
}
Index Network::classes() const {
  return impl_->classes;
}
Index Network::parameters() const {
  return impl_->parameters;
}
int Network::threads() const {
  return impl_->threads->count();
}
const std::vector<LayerReport>& Network::layers() const {
  return impl_->reports;
}

Status Network::run(const TensorView& images, const TensorView& logits,
                    const TensorView& labels) const noexcept {
  return impl_->run(images, logits, labels, nullptr);
}

Status Network::profile(const TensorView& images, std::vector<double>& seconds) const {
  seconds.resize(impl_->reports.size(), 0.0);
  return impl_->run(images, {}, {}, seconds.data());
}

std::vector<Tensor> Network::trace(const TensorView& images) const {
  const Impl& impl = *impl_;
  const std::string wrong = impl.check(images, {}, {});
  if (!wrong.empty()) throw Error(wrong);
  const Index n = images.shape[0];
  if (n < 1 || n > impl.options.batch)
    throw Error(
        fmt::format("images: {}, expected 1 to {} (the batch) to trace.", n, impl.options.batch));
  std::vector<Tensor> outputs;
  bool timed = false;
  for (std::size_t i = 0; i < impl.stages.size(); ++i) {
    const Shapes shapes = shapes_of(impl.stage(i));
    timed |= impl.stage(i).act.is_neuron();
    const bool mean = impl.reports[i].kernel == "spike_linear" && !impl.stage(i).act.is_neuron();
    outputs.emplace_back(DType::f32,
                         std::vector<Index>{timed && !mean ? impl.text.steps : 1, n, shapes.out_h,
                                            shapes.out_w, impl.stage(i).k});
  }
  float* x = impl.takes_images_built ? nullptr : const_cast<float*>(impl.dense_input(n, images, 0));
  for (const Impl::Segment& segment : impl.segments) {
    std::vector<float*> at;
    for (std::size_t i = 0; i < segment.count; ++i)
      at.push_back(outputs[segment.first + i].data<float>());
    if (segment.plan)
      impl.run_plan(segment, n, x, at[0]).or_throw();
    else
      segment.chain->trace(n, {static_cast<const std::uint8_t*>(images.data), x}, at.data());
    x = at.back();
  }
  return outputs;
}

}  // namespace convoy
