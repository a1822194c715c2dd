#include "inspect/profile.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "core/dtype.hpp"
#include "inspect/chrome_trace.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"

namespace convoy::inspect {
namespace {

struct ProfiledRun {
  std::vector<double> seconds;
  std::vector<LayerSpan> spans;
  double total() const {
    double sum = 0;
    for (const double layer : seconds) sum += layer;
    return sum;
  }
};

// The first run warms caches and threads.
ProfiledRun median_run(const Network& network, const ConstTensorView& images) {
  std::vector<ProfiledRun> runs;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<double> warm;
  network.profile(images, warm).or_throw();
  while (runs.size() < 3 || (runs.size() < 15 && elapsed() < 1)) {
    ProfiledRun run;
    network.profile(images, run.seconds, &run.spans).or_throw();
    runs.push_back(std::move(run));
    if (elapsed() > 10) break;
  }
  std::sort(runs.begin(), runs.end(),
            [](const ProfiledRun& a, const ProfiledRun& b) { return a.total() < b.total(); });
  return std::move(runs[runs.size() / 2]);
}

double bytes_of_x(const Stage& stage) {
  return static_cast<double>(shapes_of(stage).x_elements) *
         static_cast<double>(size_of(stage.dtype));
}
double bytes_of_y(const Stage& stage, bool gpu) {
  return static_cast<double>(shapes_of(stage).y_elements) *
         static_cast<double>(size_of(stage.output_dtype(gpu)));
}

// Of f32 weights where the images are pixels.
double bytes_of_weights(const Stage& stage, Index parameters) {
  const DType type = stage.dtype == DType::u8 ? DType::f32 : stage.dtype;
  return static_cast<double>(parameters) * static_cast<double>(size_of(type));
}

// Why selection takes this kernel for the stage by itself.
std::string why_chosen(const Stage& stage, const LayerReport& report, const Machine& machine,
                       const NetworkOptions& options) {
  PlanOptions plan;
  plan.device = options.device;
  plan.threads = options.threads;
  const Selection selection = select(stage, machine, plan, nullptr);
  if (selection.kernel().name() != report.kernel)
    return report.fusion.empty() ? "the fastest predicted in the network" : report.fusion;
  return fmt::format("{}; tile {}: {}", selection.why_arithmetic, selection.tile.tile.name,
                     selection.why_tile);
}

void set_floor(LayerProfile& layer, const Machine& machine) {
  layer.floor_seconds =
      std::max(layer.operations / machine.peak_flops, layer.bytes / machine.memory_bandwidth);
}

}  // namespace

NetworkProfile profile(const Network& network, const ConstTensorView& images,
                       const NetworkOptions& options) {
  PlanOptions plan;
  plan.device = options.device;
  plan.threads = options.threads;
  NetworkProfile result;
  const Machine machine = machine_for(plan);
  result.machine = measured(machine);
  const bool gpu = machine.device.kind == DeviceKind::cuda;
  if (gpu) result.machine.peak_flops = machine.tensor_flops;
  result.images = images.shape[0];
  ProfiledRun run = median_run(network, images);
  result.spans = std::move(run.spans);
  result.seconds = run.total() / (gpu ? 1 : network.threads());

  const auto n = static_cast<double>(result.images);
  for (std::size_t i = 0; i < network.layers().size(); ++i) {
    LayerProfile layer;
    layer.report = network.layers()[i];
    layer.kernel_first = i;
    for (const LayerSpan& span : result.spans)
      if (i >= span.first && i < span.first + span.count)
        layer.kernel_first = span.first, layer.kernel_layers = span.count;
    layer.seconds = run.seconds[i] / (gpu ? 1 : network.threads());
    layer.share = result.seconds > 0 ? layer.seconds / result.seconds : 0;
    layer.timed = run.seconds[i] > 0;
    Stage stage = parse_stage(layer.report.stage);
    layer.operations = 2 * n * static_cast<double>(layer.report.macs);
    layer.bytes = bytes_of_weights(stage, layer.report.parameters);
    if (i == layer.kernel_first) {
      // The network's images as they come.
      Stage read = stage;
      if (i == 0) read.dtype = images.dtype;
      layer.bytes += n * bytes_of_x(read);
    }
    if (i + 1 == layer.kernel_first + layer.kernel_layers)
      layer.bytes += n * bytes_of_y(stage, gpu);
    stage.n = network.batch();  // which the network's plans are made for
    if (layer.kernel_layers > 1)
      layer.why = i == layer.kernel_first ? layer.report.fusion
                                          : fmt::format("runs in one kernel with {}",
                                                        network.layers()[layer.kernel_first].name);
    else
      layer.why = why_chosen(stage, layer.report, machine, options);
    result.layers.push_back(std::move(layer));
  }
  // Where a kernel's layers were not timed one by one, the first stands for all.
  for (LayerProfile& layer : result.layers) {
    LayerProfile& first = result.layers[layer.kernel_first];
    if (!layer.timed && &layer != &first) {
      first.bytes += layer.bytes, first.operations += layer.operations;
      layer.bytes = layer.operations = 0;
    }
  }
  for (LayerProfile& layer : result.layers) set_floor(layer, result.machine);
  return result;
}

std::string trace_of(const NetworkProfile& profile, const std::string& name) {
  ChromeTrace trace;
  trace.name_group(0, name);
  trace.name_track({0, 0}, "kernels");
  trace.name_track({0, 1}, "layers, by their share of the kernel");
  trace.tell("machine", std::string_view(profile.machine.name));
  trace.tell("images", static_cast<double>(profile.images));
  for (const LayerSpan& span : profile.spans) {
    const LayerProfile& first = profile.layers[span.first];
    double all = 0;
    for (std::size_t i = span.first; i < span.first + span.count; ++i)
      all += profile.layers[i].seconds;
    const std::string kernel = span.count == 1
                                   ? first.report.kernel
                                   : fmt::format("{} ({} layers)", first.report.kernel, span.count);
    trace.add({0, 0}, kernel, span.begin, span.end,
              {{"images", static_cast<double>(span.images)},
               {"first layer", std::string_view(first.report.name)},
               {"why", std::string_view(first.why)}});
    double begin = span.begin;
    for (std::size_t i = span.first; i < span.first + span.count; ++i) {
      const LayerProfile& layer = profile.layers[i];
      if (all <= 0 || layer.seconds <= 0) continue;
      const double end = std::min(span.end, begin + (span.end - span.begin) * layer.seconds / all);
      trace.add({0, 1}, layer.report.name, begin, end,
                {{"stage", std::string_view(layer.report.stage)},
                 {"kernel", std::string_view(layer.report.kernel)},
                 {"share of all, %", 100 * layer.share},
                 {"bytes of the run", layer.bytes},
                 {"floor of the run, us", 1e6 * layer.floor_seconds},
                 {"times the floor", layer.times_floor()}});
      begin = end;
    }
  }
  return trace.text();
}

}  // namespace convoy::inspect
