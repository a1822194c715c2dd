#include "verify/large.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "convoy/plan.hpp"
#include "plan/kernel_table.hpp"
#include "plan/parts.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"
#include "verify/draw.hpp"

namespace convoy::verify {
namespace {

constexpr Index patterns = 7;  // images that are drawn: a prime, so that no slice repeats

/// A dense tensor with an image axis, behind one of the steps where `steps` is not 0.
struct Images {
  Tensor* tensor;
  Index steps;
  Index n() const { return tensor->view().shape[steps > 0 ? 1 : 0]; }
  Index of_image() const { return tensor->elements() / n() / std::max<Index>(steps, 1); }
  /// Images [first, first + count) of step t.
  TensorView at(Index t, Index first, Index count) const {
    const TensorView all = tensor->view();
    const auto offset = static_cast<std::size_t>((t * n() + first) * of_image());
    return {static_cast<char*>(all.data) + offset * size_of(all.dtype),
            all.dtype,
            {count, of_image()},
            all.device};
  }
};

/// Fills every step of `to` with the images of `from`, over and over.
void repeat(const Images& from, const Images& to) {
  for (Index t = 0; t < std::max<Index>(to.steps, 1); ++t) {
    Index done = std::min(from.n(), to.n());
    copy_tensor(from.at(t, 0, done), to.at(t, 0, done));
    for (; done < to.n(); done *= 2) {
      const Index more = std::min(done, to.n() - done);
      copy_tensor(to.at(t, 0, more), to.at(t, done, more));
    }
  }
}

/// What a run of n images reads and writes.
struct Run {
  Stage stage;
  Tensor x, y, pre, act, idx, membrane_in, membrane_out;
  Index x_steps, y_steps;

  Run(const Stage& given, Index n, const Machine& machine) : stage(given) {
    stage.n = n;
    const Device device = machine.device;
    const bool neuron = stage.act.is_neuron();
    const DType out = stage.output_dtype(device.kind == DeviceKind::cuda);
    y_steps = neuron ? stage.t : 0;
    x_steps = neuron && !stage.hold ? stage.t : 0;
    x = Tensor(stage.dtype, x_shape(stage), device);
    y = Tensor(out, y_shape(stage), device);
    if (stage.keep.pre) pre = Tensor(out, pre_shape(stage), device);
    if (stage.keep.act) act = Tensor(out, pre_shape(stage), device);
    if (stage.keep.idx) idx = Tensor(DType::i32, y_shape(stage), device);
    if (!neuron) return;
    membrane_in = Tensor(DType::f32, membrane_shape(stage), device);
    membrane_out = Tensor(DType::f32, membrane_shape(stage), device);
  }
  Operands operands(const RandomOperands& constants, Tensor& workspace) {
    Operands all;
    all.x = x, all.y = y;
    if (stage.bias) all.bias = constants.bias;
    if (stage.norm) all.norm_scale = constants.norm_scale, all.norm_shift = constants.norm_shift;
    if (stage.keep.pre) all.pre = pre;
    if (stage.keep.act) all.act = act;
    if (stage.keep.idx) all.idx = idx;
    if (stage.act.is_neuron()) all.membrane_in = membrane_in, all.membrane_out = membrane_out;
    all.workspace = workspace.data<void>();
    return all;
  }
  std::vector<std::pair<const char*, Images>> written() {
    std::vector<std::pair<const char*, Images>> all;
    const auto add = [&](const char* name, Tensor& tensor, Index steps) {
      if (tensor.view()) all.emplace_back(name, Images{&tensor, steps});
    };
    add("y", y, y_steps);
    add("pre", pre, y_steps);
    add("act", act, y_steps);
    add("idx", idx, y_steps);
    add("membrane_out", membrane_out, 0);
    return all;
  }
};

std::string bytes_of(const ConstTensorView& view) {
  std::string bytes(static_cast<std::size_t>(view.elements()) * size_of(view.dtype), '\0');
  TensorView host(bytes.data(), view.dtype, {view.shape[0], view.shape[1]});
  copy_tensor(view, host);
  return bytes;
}

/// Images worth a look: the ends, those beside the seams of parts and beside 2^30, 2^31 and 2^32
/// elements of a tensor, and some between.
std::vector<Index> chosen(Run& run, Index part, Random& random) {
  const Index n = run.stage.n;
  std::vector<Index> images{0, n - 1};
  const auto beside = [&](Index image) {
    for (Index i = image - 1; i <= image + 1; ++i)
      if (i >= 0 && i < n) images.push_back(i);
  };
  for (Index seam = part, count = 0; seam < n && count < 8; seam += part, ++count) beside(seam);
  for (const auto& [name, tensor] : run.written())
    for (const int bits : {30, 31, 32}) beside((Index{1} << bits) / tensor.of_image());
  for (const int bits : {30, 31, 32})
    beside((Index{1} << bits) / Images{&run.x, run.x_steps}.of_image());
  for (int i = 0; i < 60; ++i) images.push_back(random.between(0, n - 1));
  std::sort(images.begin(), images.end());
  images.erase(std::unique(images.begin(), images.end()), images.end());
  return images;
}

std::string compare(const LargeRun& run, std::uint64_t seed, const Machine& machine,
                    LargeResult& result) {
  const Device device = machine.device;
  PlanOptions options;
  options.device = device;
  options.kernel = run.kernel->name();
  options.use_tuning = false;
  Stage some = run.stage, one = run.stage;
  some.n = patterns, one.n = 1;
  const RandomOperands drawn(some, seed, machine);
  const auto plan_of = [&](const Stage& stage) { return Plan(stage, drawn.weights, options); };
  const auto workspace_of = [&](const Plan& plan) {
    return plan.workspace_bytes() == 0
               ? Tensor()
               : Tensor(DType::u8, {static_cast<Index>(plan.workspace_bytes())}, device);
  };

  // Each drawn image alone, all steps of an operand one behind the other.
  Run few(some, patterns, machine), alone(some, 1, machine);
  copy_tensor(drawn.x, few.x);
  if (few.membrane_in.view()) {
    Tensor v(DType::f32, membrane_shape(some));
    for (Index i = 0; i < v.elements(); ++i) v.data<float>()[i] = 0.25F * static_cast<float>(i % 5);
    copy_tensor(v, few.membrane_in);
  }
  std::map<std::string, std::vector<std::string>> want;
  {
    const Plan plan = plan_of(one);
    Tensor workspace = workspace_of(plan);
    for (Index image = 0; image < patterns; ++image) {
      const auto bring = [&](Tensor& from, Tensor& to, Index steps) {
        for (Index t = 0; from.view() && t < std::max<Index>(steps, 1); ++t)
          copy_tensor(Images{&from, steps}.at(t, image, 1), Images{&to, steps}.at(t, 0, 1));
      };
      bring(few.x, alone.x, few.x_steps);
      bring(few.membrane_in, alone.membrane_in, 0);
      plan.run(alone.operands(drawn, workspace)).or_throw();
      for (const auto& [name, tensor] : alone.written()) {
        std::string bytes;
        for (Index t = 0; t < std::max<Index>(tensor.steps, 1); ++t)
          bytes += bytes_of(tensor.at(t, 0, 1));
        want[name].push_back(std::move(bytes));
      }
    }
  }

  Run all(run.stage, run.stage.n, machine);
  repeat({&few.x, few.x_steps}, {&all.x, all.x_steps});
  if (few.membrane_in.view()) repeat({&few.membrane_in, 0}, {&all.membrane_in, 0});
  const Plan plan = plan_of(run.stage);
  Tensor workspace = workspace_of(plan);
  plan.run(all.operands(drawn, workspace)).or_throw();
  const Parts parts = part_of(*run.kernel, run.stage, machine);
  result.parts = parts.count;
  Random random(seed);
  for (const Index image : chosen(all, parts.images, random)) {
    ++result.images;
    for (const auto& [name, tensor] : all.written()) {
      const std::string& expected = want[name][static_cast<std::size_t>(image % patterns)];
      const std::size_t size =
          expected.size() / static_cast<std::size_t>(std::max<Index>(tensor.steps, 1));
      for (Index t = 0; t < std::max<Index>(tensor.steps, 1); ++t)
        if (bytes_of(tensor.at(t, image, 1)) !=
            expected.substr(static_cast<std::size_t>(t) * size, size))
          return fmt::format("{}: image {}, step {}: other bits than the image has alone", name,
                             image, t);
    }
  }
  return {};
}

/// The most images that the kernel takes at once, up to `most`.
Index at_once(const Kernel& kernel, Stage stage, Index most, const Machine& machine) {
  const auto takes = [&](Index n) {
    stage.n = n;
    return problems(stage).empty() && kernel.refusals(stage, machine).empty();
  };
  if (takes(most)) return most;
  Index low = 1, high = most;
  while (high - low > 1) {
    const Index n = low + (high - low) / 2;
    (takes(n) ? low : high) = n;
  }
  return low;
}

}  // namespace

std::vector<LargeRun> draw_large(Random& random, const Machine& machine, Index count,
                                 const std::string& only, double bytes) {
  constexpr double most_seconds = 2;  // of a run, predicted
  std::vector<const Kernel*> kernels;
  for (const Kernel* kernel : kernel_table())
    if (kernel->device() == machine.device.kind && !is_for_chains(*kernel) &&
        (only.empty() ? !kernel->facts().by_name_only : kernel->name() == only))
      kernels.push_back(kernel);
  std::vector<LargeRun> runs;
  for (int attempt = 0; !kernels.empty() && attempt < 4000 && std::ssize(runs) < count; ++attempt) {
    // One after the other, so that a few runs are of different kernels.
    const Kernel& kernel = *kernels[static_cast<std::size_t>(
        (static_cast<Index>(runs.size()) * 5 + attempt / 40) % std::ssize(kernels))];
    Stage stage = draw_stage(random, machine.device.kind);
    stage.n = 1;
    if (!problems(stage).empty() || !fits(kernel, stage, machine)) continue;
    const Shapes shapes = shapes_of(stage);
    const Index largest =
        std::max({shapes.x_elements, shapes.y_elements, shapes.pre_elements, Index{1}});
    // Half for what a plan's workspace may take.
    const auto fit = static_cast<Index>(0.5 * bytes / bytes_of_operands(stage));
    const Index at_2_31 = (Index{1} << 31) / largest + 2;
    if (fit < 2) continue;
    const Index most = at_once(kernel, stage, fit, machine);
    const bool is_cut = most < fit;
    stage.n = is_cut ? std::min(fit, most + random.between(1, 20)) : at_2_31;
    if (stage.n > fit || !problems(stage).empty()) continue;
    const Parts parts = part_of(kernel, stage, machine);
    const Tile tile = tiles_of_part(kernel, stage, parts, machine).front();
    if (cost_in_parts(kernel, stage, parts, tile, machine).seconds > most_seconds) continue;
    runs.push_back({stage, &kernel,
                    is_cut ? fmt::format("{} images, the kernel takes {} at once", stage.n, most)
                           : "a tensor of 2^31 elements or more"});
  }
  return runs;
}

LargeResult check_large(const LargeRun& run, std::uint64_t seed, const Machine& machine) {
  LargeResult result;
  try {
    result.failure = compare(run, seed, machine, result);
  } catch (const std::bad_alloc&) {
    result.skipped = "no memory on the host";
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.find("no memory") != std::string_view::npos)
      result.skipped = what;
    else
      result.failure = what;
  }
  return result;
}

}  // namespace convoy::verify
