// convoy run: classify images with a network.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.hpp"
#include "convoy/network.hpp"
#include "convoy/pinned.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "images.hpp"
#include "inspect/profile.hpp"
#include "io/dataset.hpp"
#include "io/idx.hpp"
#include "io/npy.hpp"
#include "io/weights.hpp"
#include "network/convert.hpp"
#include "options.hpp"
#include "profile_text.hpp"
#include "result_file.hpp"

namespace convoy::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct RunArguments {
  std::string model, labels, device = "cpu", json, out, trace, weights = "f32";
  ImageOptions images;
  int threads = 0;
  Index batch = NetworkOptions{}.batch, limit = std::numeric_limits<Index>::max();
  bool confusion = false, profile = false;
};

struct Measured {
  std::vector<std::int32_t> labels;
  std::vector<double> seconds;  // of warm runs over all images
  std::vector<double> share;    // of each layer, sum 1
  std::vector<double> latency;  // seconds, one image at a time
  // On a GPU, likewise over all images, from u8 in page-locked memory and from f32 in ordinary
  // memory: x', as a training program has them.
  std::vector<double> pinned, values;
};

Check weight_type() {
  return {"", [](const std::string& text) {
            return text == "f32" || text == "f16" ? std::string() : text + ": expected f32 or f16";
          }};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Seconds of runs, until the median is steady or a second has gone. The first one warms caches and
/// threads.
std::vector<double> time_runs(const Network& network, const ConstTensorView& images,
                              const TensorView& labels) {
  std::vector<double> all;
  network.run(images, {}, labels).or_throw();
  const auto begin = Clock::now();
  while (all.size() < 3 || (all.size() < 25 && since(begin) < 1)) {
    const auto start = Clock::now();
    network.run(images, {}, labels).or_throw();
    all.push_back(since(start));
    if (since(begin) > 10) break;
  }
  return all;
}

/// The images as x', by the network's mean and std.
std::vector<float> values_of(const Network& network, const ConstTensorView& pixels) {
  const std::vector<float> table =
      network::values_of_pixels({network.text().mean, network.text().std}, network.text().c);
  const auto channels = static_cast<std::size_t>(network.text().c);
  std::vector<float> values(static_cast<std::size_t>(pixels.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = table[i % channels * 256 + static_cast<const std::uint8_t*>(pixels.data)[i]];
  return values;
}

Measured measure(const Network& network, const io::Images& images, Index n, Device device) {
  Measured m;
  m.labels.resize(static_cast<std::size_t>(n));
  const ConstTensorView all = view_of(images, 0, n);
  const TensorView labels = TensorView::of(m.labels.data(), {n});
  m.seconds = time_runs(network, all, labels);
  if (device.kind == DeviceKind::cuda) {
    PinnedTensor pixels(DType::u8, {n, images.h, images.w, images.c}, device),
        pinned_labels(DType::i32, {n}, device);
    copy_tensor(all, pixels);
    m.pinned = time_runs(network, pixels, pinned_labels);
    const std::vector<float> values = values_of(network, all);
    m.values = time_runs(
        network, ConstTensorView::of(values.data(), {n, images.h, images.w, images.c}), labels);
  }
  network.profile(all, m.share).or_throw();
  double total = 0;
  for (const double seconds : m.share) total += seconds;
  for (double& seconds : m.share) seconds = total > 0 ? seconds / total : 0;
  std::int32_t label = 0;
  const TensorView one = TensorView::of(&label, {1});
  const auto from = Clock::now();
  for (Index i = 0; i < 2000 && (i < 20 || since(from) < 0.1); ++i) {
    const auto start = Clock::now();
    network.run(view_of(images, i % n, 1), {}, one).or_throw();
    m.latency.push_back(since(start));
  }
  return m;
}

/// counts[actual][predicted]
std::vector<std::vector<Index>> confusion(const Measured& m, const std::vector<std::uint8_t>& truth,
                                          Index classes) {
  std::vector<std::vector<Index>> counts(static_cast<std::size_t>(classes),
                                         std::vector<Index>(static_cast<std::size_t>(classes)));
  for (std::size_t i = 0; i < m.labels.size(); ++i)
    ++counts[truth[i]][static_cast<std::size_t>(m.labels[i])];
  return counts;
}

void print_table(const Network& network, const Measured& m, Index n, Index right, double seconds) {
  std::size_t name = 5, kernel = 6, stage = 5;
  for (const LayerReport& layer : network.layers()) {
    name = std::max(name, printable(layer.name).size());
    kernel = std::max(kernel, layer.kernel.size());
    stage = std::max(stage, layer.stage.size());
  }
  fmt::print("{:<{}}  {:<{}}  {:>10}  {:<{}}  {:>6}\n", "layer", name, "stage", stage, "parameters",
             "kernel", kernel, "time");
  for (std::size_t i = 0; i < network.layers().size(); ++i) {
    const LayerReport& layer = network.layers()[i];
    fmt::print("{:<{}}  {:<{}}  {:>10}  {:<{}}  {:>5.1f}%\n", printable(layer.name), name,
               layer.stage, stage, layer.parameters, layer.kernel, kernel, 100 * m.share[i]);
  }
  const char* heading = "\n";
  for (const LayerReport& layer : network.layers()) {
    if (layer.fusion.empty()) continue;
    fmt::print("{}from {} on: {}\n", heading, printable(layer.name), layer.fusion);
    heading = "";
  }
  const auto [low, high] = std::minmax_element(m.seconds.begin(), m.seconds.end());
  fmt::print("\nparameters  {}, steps {}\n", network.parameters(), network.text().steps);
  fmt::print("threads     {}\n", network.threads());
  fmt::print(
      "images      {} in {:.3f} ms: {:.0f} images/s (median of {} runs, {:.3f} to {:.3f} ms)\n", n,
      seconds * 1e3, static_cast<double>(n) / seconds, m.seconds.size(), *low * 1e3, *high * 1e3);
  if (!m.pinned.empty()) {
    fmt::print("pinned      {:.3f} ms, u8 images in page-locked memory\n", median(m.pinned) * 1e3);
    fmt::print("floats      {:.3f} ms, f32 images in ordinary memory\n", median(m.values) * 1e3);
  }
  fmt::print("one image   {:.2f} us, host image to label (median of {})\n", median(m.latency) * 1e6,
             m.latency.size());
  fmt::print("accuracy    {} of {} right\n", right, n);
}

void print_confusion(const std::vector<std::vector<Index>>& counts) {
  fmt::print("\nactual \\ predicted");
  for (std::size_t i = 0; i < counts.size(); ++i) fmt::print("{:>6}", i);
  fmt::print("\n");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    fmt::print("{:>18}", i);
    for (const Index count : counts[i]) fmt::print("{:>6}", count);
    fmt::print("\n");
  }
}

std::string json_of(const Network& network, const Measured& m, Index n, Index right, double seconds,
                    Index not_finite, const RunArguments& arguments,
                    const std::vector<std::vector<Index>>& counts,
                    const std::optional<inspect::NetworkProfile>& profile) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < network.layers().size(); ++i) {
    const LayerReport& layer = network.layers()[i];
    layers.push_back({{"name", layer.name},
                      {"stage", layer.stage},
                      {"kernel", layer.kernel},
                      {"fusion", layer.fusion},
                      {"parameters", layer.parameters},
                      {"macs", layer.macs},
                      {"share_of_time", m.share[i]}});
  }
  nlohmann::ordered_json report = {
      {"convoy", version()},
      {"model", arguments.model},
      {"device", arguments.device},
      {"weights", arguments.weights},
      {"threads", network.threads()},
      {"images", n},
      {"right", right},
      {"images_not_finite", not_finite},
      {"accuracy", static_cast<double>(right) / static_cast<double>(n)},
      {"seconds", seconds},
      {"seconds_of_runs", m.seconds},
      {"images_per_second", static_cast<double>(n) / seconds},
      {"one_image_median_seconds", median(m.latency)},
      {"parameters", network.parameters()},
      {"steps", network.text().steps},
      {"layers", layers},
      {"confusion", counts}};
  if (profile) report["profile"] = to_json(*profile);
  if (!m.pinned.empty()) {
    report["pinned_u8_seconds"] = median(m.pinned);
    report["pinned_u8_seconds_of_runs"] = m.pinned;
    report["pageable_f32_seconds"] = median(m.values);
    report["pageable_f32_seconds_of_runs"] = m.values;
  }
  return json_text(report, 2) + "\n";
}

struct Outputs {
  std::vector<float> logits;  // [n,classes]
  std::vector<std::int32_t> labels;
};

Outputs computed(const Network& network, const io::Images& images, Index n) {
  const Index classes = network.classes();
  Outputs outputs{std::vector<float>(static_cast<std::size_t>(n * classes)),
                  std::vector<std::int32_t>(static_cast<std::size_t>(n))};
  network
      .run(view_of(images, 0, n), TensorView::of(outputs.logits.data(), {n, classes}),
           TensorView::of(outputs.labels.data(), {n}))
      .or_throw();
  return outputs;
}

/// Images with an output that is NaN or infinite: their labels say nothing.
Index count_not_finite(const std::vector<float>& logits, Index classes) {
  Index count = 0;
  for (auto at = logits.begin(); at != logits.end(); at += classes)
    count += std::any_of(at, at + classes, [](float logit) { return !std::isfinite(logit); });
  return count;
}

/// What --out writes: .npy, the logits [n,classes]; else a table with a line an image.
std::string text_of(const Outputs& outputs, Index classes, bool npy) {
  const auto n = static_cast<Index>(outputs.labels.size());
  if (npy) return io::npy_of(ConstTensorView::of(outputs.logits.data(), {n, classes}));
  std::string text = "index,label";
  for (Index k = 0; k < classes; ++k) text += fmt::format(",logit{}", k);
  const float* logit = outputs.logits.data();
  for (std::size_t i = 0; i < outputs.labels.size(); ++i) {
    text += fmt::format("\n{},{}", i, outputs.labels[i]);
    for (Index k = 0; k < classes; ++k) text += fmt::format(",{}", *logit++);
  }
  return text + "\n";
}

/// Where the network's parameters may lie, each in a file of its own.
std::vector<std::string> parameter_files(const std::string& folder, const NetworkText& network) {
  const io::ParameterFolder parameters(folder);
  std::vector<std::string> files;
  for (const NetworkLayer& layer : network.layers)
    for (const std::string& prefix : {layer.name, layer.batchnorm})
      for (const char* kind : {"weight", "bias", "running_mean", "running_var"})
        for (const char* form : {"txt", "npy"})
          if (!prefix.empty())
            files.push_back(parameters.path_of(prefix + "." + kind) + "." + form);
  return files;
}

void check_labels(const std::vector<std::uint8_t>& labels, const std::string& path, Index images,
                  Index classes) {
  if (static_cast<Index>(labels.size()) != images)
    throw Error(
        fmt::format("{}: {} labels for {} images. Give the labels that belong to the images.",
                    printable_path(path), labels.size(), images));
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] >= classes)
      throw Error(fmt::format("{}: label {} is {}, expected less than {} (the network's classes).",
                              printable_path(path), i, labels[i], classes));
}

void run(const RunArguments& arguments) {
  const ImageOptions& named = arguments.images;
  if (named.images.empty() != arguments.labels.empty())
    throw Error(
        "--images and --labels belong together: give both, or neither for the Fashion-MNIST test "
        "set.");
  const bool npy = arguments.out.ends_with(".npy");
  if (!arguments.out.empty() && !npy && !arguments.out.ends_with(".csv"))
    throw Error(
        fmt::format("--out {}: expected a name that ends in .npy (the logits) or .csv "
                    "(index, label and logits, one line per image).",
                    printable_path(arguments.out)));
  const ResultFile json("--json", arguments.json), out("--out", arguments.out),
      trace("--trace", arguments.trace);
  ResultFile::expect_different(json, out);
  ResultFile::expect_different(json, trace);
  ResultFile::expect_different(out, trace);
  for (const ResultFile& result : {json, out, trace})
    result.expect_no_input({named.images, arguments.labels, arguments.model + "/network.txt",
                            arguments.model + "/model.safetensors"});
  NetworkOptions options;
  options.threads = arguments.threads;
  options.batch = arguments.batch;
  options.device = parse_device(arguments.device);
  options.weights = arguments.weights == "f16" ? DType::f16 : DType::f32;
  const Network network(arguments.model, options);
  for (const ResultFile& result : {json, out, trace})
    result.expect_no_input(parameter_files(arguments.model, network.text()));
  const io::Images images = named.read(arguments.model, network.text());
  const std::string label_file =
      named.images.empty() ? io::find_data("t10k-labels-idx1-ubyte", named.data) : arguments.labels;
  const auto truth = io::read_labels(label_file);
  check_labels(truth, label_file, images.n, network.classes());

  const Index n = std::min(arguments.limit, images.n);
  const Measured m = measure(network, images, n, options.device);
  Index right = 0;
  for (std::size_t i = 0; i < m.labels.size(); ++i) right += m.labels[i] == truth[i];
  const double seconds = median(m.seconds);
  const auto counts = confusion(m, truth, network.classes());
  Outputs outputs = computed(network, images, n);
  const Index not_finite = count_not_finite(outputs.logits, network.classes());
  if (out.asked_for()) out.write(text_of(outputs, network.classes(), npy));
  std::optional<inspect::NetworkProfile> profile;
  if (arguments.profile || trace.asked_for()) {
    profile = inspect::profile(network, view_of(images, 0, n), options);
    if (trace.asked_for()) trace.write(inspect::trace_of(*profile, arguments.model));
  }
  if (json.asked_for())
    json.write(json_of(network, m, n, right, seconds, not_finite, arguments, counts, profile));
  if (json.alone() || trace.alone()) return;
  print_table(network, m, n, right, seconds);
  if (not_finite > 0)
    fmt::print(
        "not finite  {} of {} images have NaN or infinite outputs; their labels mean nothing. "
        "`convoy dump` writes the output of each operator.\n",
        not_finite, n);
  if (profile) fmt::print("{}", to_text(*profile));
  if (arguments.confusion) print_confusion(counts);
  fmt::print("{:.4f}:{:.4f}\n", seconds, static_cast<double>(right) / static_cast<double>(n));
}

}  // namespace

void add_run(Command& app, int&) {
  auto arguments = std::make_shared<RunArguments>();
  Command* command = app.add_subcommand(
      "run", "Classify images with a network; the last line printed is time:accuracy");
  add_model(*command, arguments->model);
  arguments->images.add_to(*command);
  command
      ->add_option("--labels", arguments->labels, "Labels of --images, an IDX file, plain or gzip")
      ->type_name("FILE")
      ->check(not_empty());
  add_device(*command, arguments->device);
  add_threads(*command, arguments->threads);
  command
      ->add_option(
          "--batch", arguments->batch,
          "Images computed at once, in layers that run as plans; does not change results. 0: "
          "Convoy chooses")
      ->type_name("N")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option(
          "--weights", arguments->weights,
          "Type of the weights: f32 (unchanged) or f16 (rounded to f16 first, which changes "
          "results and halves the Tensor Core work of spiking networks on a GPU)")
      ->type_name("TYPE")
      ->capture_default_str()
      ->check(weight_type());
  command->add_option("--limit", arguments->limit, "Use only the first N images")
      ->type_name("N")
      ->check(at_least(1));
  command
      ->add_option("--json", arguments->json,
                   "Also write the report as JSON to this file; - prints only the JSON")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option(
          "--out", arguments->out,
          "Also write the outputs to this file: the logits (.npy), or index, label and logits "
          "per image (.csv)")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_flag(
      "--profile", arguments->profile,
      "Also print each layer's time, bytes, minimum possible time, and why it runs on its kernel");
  command
      ->add_option(
          "--trace", arguments->trace,
          "Also write when each layer ran, as a Chrome trace (https://ui.perfetto.dev); - prints "
          "only the trace")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_flag("--confusion", arguments->confusion,
                    "Also print how often each class was taken for which");
  command->footer(
      "Example: convoy run models/fashion-scnn\n"
      "         convoy run models/fashion-scnn --images t10k-images-idx3-ubyte.gz --labels "
      "t10k-labels-idx1-ubyte.gz --threads 1");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace convoy::cli
