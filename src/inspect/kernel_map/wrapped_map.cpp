// The maps of kernels that run another one between passes over memory (cuda/wrap): the inner
// kernel's, with what the passes do.
#include <fmt/core.h>

#include <vector>

#include "convoy/error.hpp"
#include "cuda/wrap/inner_stage.hpp"
#include "inspect/kernel_map/kernel_map.hpp"
#include "plan/kernel_table.hpp"

namespace convoy::inspect {
namespace {

/// `nchw_strided`: as nchw, around a kernel that reads any strides.
enum class Wrap { pooled, padded, nchw, nchw_strided, fired };

/// As plan/kernel_table.cpp has them.
struct Wrapper {
  std::string_view kernel, inner;
  Wrap wrap;
};
constexpr Index padded_multiple = 8;
constexpr Wrapper wrappers[] = {{"halo_pool", "halo", Wrap::pooled},
                                {"halo_padded", "halo", Wrap::padded},
                                {"halo_pool_padded", "halo_pool", Wrap::padded},
                                {"halo_nchw", "halo", Wrap::nchw},
                                {"halo_neuron_pass", "halo_sums", Wrap::fired},
                                {"window_neuron_pass", "window", Wrap::fired},
                                {"halo_padded_nchw", "halo_padded", Wrap::nchw},
                                {"few_nchw", "few", Wrap::nchw},
                                {"window_pool", "window", Wrap::pooled},
                                {"window_nchw", "window", Wrap::nchw},
                                {"window_neuron_pass_nchw", "window_neuron_pass", Wrap::nchw},
                                {"winograd4_nchw", "winograd4", Wrap::nchw},
                                {"few_filters_pool", "few_filters", Wrap::pooled},
                                {"fma_pool", "fma", Wrap::pooled},
                                {"fma_neuron_pass", "fma", Wrap::fired},
                                {"fma_neuron_pass_nchw", "fma_neuron_pass", Wrap::nchw_strided},
                                {"depthwise_pool", "depthwise", Wrap::pooled}};

Stage inner_stage(const Stage& stage, Wrap wrap) {
  switch (wrap) {
    case Wrap::pooled:
      return cuda::stage_without_pool(stage);
    case Wrap::padded:
      return cuda::stage_padded(stage, padded_multiple);
    case Wrap::fired:
      return cuda::stage_of_sums(stage);
    case Wrap::nchw:
    case Wrap::nchw_strided:
      break;
  }
  return cuda::stage_nhwc(stage);
}

/// The kernel inside; `halo_sums` has no map of its own.
std::unique_ptr<KernelMap> inner_map(const Wrapper& wrapper, const Stage& stage,
                                     const Machine& machine, const std::string& tile) {
  const Stage inner = inner_stage(stage, wrapper.wrap);
  if (wrapper.wrap == Wrap::fired && wrapper.inner == "halo_sums")
    return map_halo_sums(inner, machine, tile);
  return map_gpu_kernel(std::string(wrapper.inner), inner, machine, tile);
}

/// What passes do; an empty text: there is none.
struct Passes {
  std::string before, after;
};
Passes passes_of(const Stage& stage, Wrap wrap) {
  const Shapes shapes = shapes_of(stage);
  const Stage inner = inner_stage(stage, wrap);
  switch (wrap) {
    case Wrap::pooled:
      return {"", fmt::format("reads the convolution's output, which the kernel wrote to {}, and "
                              "makes y of it (kernels pooled, activated)",
                              stage.keep.pre   ? "pre"
                              : stage.keep.act ? "act"
                                               : "workspace")};
    case Wrap::padded:
      return {inner.c == stage.c ? ""
                                 : fmt::format("copies x to workspace with {} channels instead of "
                                               "{}, zeros in the others (kernel pad)",
                                               inner.c, stage.c),
              inner.k == stage.k ? ""
                                 : fmt::format("copies {} of the {} channels that the kernel wrote "
                                               "to workspace to y (kernel pad)",
                                               stage.k, inner.k)};
    case Wrap::fired:
      return {"",
              fmt::format("takes each neuron through its {} steps, with the sums that the "
                          "kernel wrote to workspace: charge, fire, reset, membranes in "
                          "registers; {} (kernel neurons)",
                          stage.t,
                          cuda::pools_apart(stage) ? "the pool of its spikes is a pass of its own"
                          : stage.pool             ? "it makes y of the greatest of each window"
                                                   : "its spikes are y")};
    case Wrap::nchw:
    case Wrap::nchw_strided:
      break;
  }
  return {wrap == Wrap::nchw && cuda::layouts_differ(stage.h * stage.w, stage.c)
              ? "transposes x to NHWC in workspace (kernel transpose)"
              : "",
          cuda::layouts_differ(shapes.out_h * shapes.out_w, stage.k)
              ? "transposes the kernel's result from workspace to y, NCHW (kernel transpose)"
              : ""};
}

class WrappedMap final : public KernelMap {
 public:
  WrappedMap(const Stage& stage, const Wrapper& wrapper, std::unique_ptr<KernelMap> inner)
      : KernelMap(stage, std::string(wrapper.kernel), inner->tile(), inner->machine()),
        wrap_(wrapper.wrap),
        passes_(passes_of(stage, wrapper.wrap)),
        inner_(std::move(inner)) {}

  std::vector<MapFact> facts() const override {
    std::vector<MapFact> all;
    if (!passes_.before.empty()) all.push_back({"pass before", passes_.before, ""});
    if (!passes_.after.empty()) all.push_back({"pass after", passes_.after, ""});
    all.push_back({"inside", inner_->kernel(), to_text(inner_->stage())});
    if (wrap_ == Wrap::fired && cuda::turns_of(stage()) > 1)
      all.push_back({"time steps", fmt::format("{}", stage().t),
                     fmt::format("{} images each: the kernel's image n is image n % {} of the "
                                 "stage in step n / {}",
                                 stage().n, stage().n, stage().n)});
    for (MapFact& fact : inner_->facts()) all.push_back(std::move(fact));
    return all;
  }
  std::vector<TilePlace> first_tiles(int count) const override {
    return inner_->first_tiles(count);
  }
  std::string order() const override { return inner_->order(); }
  DType output_type() const override {
    return wrap_ == Wrap::fired ? KernelMap::output_type() : inner_->output_type();
  }
  TilePlace tile_at(Index x, Index y) const override { return inner_->tile_at(x, y); }
  ThreadStep thread_step(const TilePlace& tile, int thread, Index step) const override {
    ThreadStep what = inner_->thread_step(tile, thread, step);
    if (!passes_.before.empty())
      what.notes.emplace_back("bytes of x are those in workspace, written by the pass before");
    if (wrap_ == Wrap::nchw_strided)
      what.notes.emplace_back("bytes of x are those of NHWC: this x is NCHW, read by its strides");
    return what;
  }
  SharedMemoryMap shared_memory() const override { return inner_->shared_memory(); }
  Pipeline pipeline() const override { return inner_->pipeline(); }

  Accumulator accumulator(const OutputIndex& output) const override {
    expect_output(stage(), output);
    Accumulator a = inner_->accumulator(output);
    add_once(a.stored, passes_.after, "; not to y, but to where the pass after reads it");
    return a;
  }
  std::optional<OutputIndex> output_of(const TilePlace& tile, int thread,
                                       int number) const override {
    auto output = inner_->output_of(tile, thread, number);
    if (!output || output->k >= stage().k) return std::nullopt;  // a filter that was added
    output->n %= stage().n;                                      // of one of the time steps
    return output;
  }
  OperandPlace operand(const OutputIndex& output, const TapIndex& tap) const override {
    OperandPlace place = inner_->operand(output, tap);
    add_once(place.brought, passes_.before, ", from workspace, written by the pass before");
    return place;
  }
  InputElement in_slot(const TilePlace& tile, Index step, int byte) const override {
    return of_x(inner_->in_slot(tile, step, byte));
  }
  InputElement loaded(const TilePlace& tile, int thread, Index step, int number) const override {
    return of_x(inner_->loaded(tile, thread, step, number));
  }
  std::optional<WinogradPlace> winograd(const OutputIndex& output,
                                        const TapIndex* tap) const override {
    expect_output(stage(), output);
    return inner_->winograd(output, tap);
  }

 private:
  /// Of a pass that there is; one wrapper inside another says so once.
  static void add_once(std::string& text, const std::string& pass, const std::string& what) {
    if (!pass.empty() && !text.ends_with(what)) text += what;
  }
  /// The element of x itself behind one that the inner kernel reads.
  InputElement of_x(InputElement x) const {
    x.inside = x.inside && x.c < stage().c;  // a channel that was added reads 0
    x.byte = x.inside ? x_byte(stage(), x) : -1;
    return x;
  }

  Wrap wrap_;
  Passes passes_;
  std::unique_ptr<KernelMap> inner_;
};

bool serves(const std::string& kernel, const Stage& stage, const Machine& machine) {
  try {
    return map_gpu_kernel(kernel, stage, machine, {}) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

/// What a wrapper serves around a kernel that serves everything.
Serves served_around_everything(Wrap wrap) {
  switch (wrap) {
    case Wrap::pooled:
      return cuda::served_by_pooled(serves_everything);
    case Wrap::padded:
      return cuda::served_by_padded(serves_everything);
    case Wrap::fired:
      return cuda::served_by_fired(serves_everything);
    case Wrap::nchw:
    case Wrap::nchw_strided:
      break;
  }
  return cuda::served_by_nchw(serves_everything);
}

/// What a wrapper does not take, by the code of this build, or as far as no inner kernel is asked.
void expect_wrapped(const Wrapper& wrapper, const Stage& stage, const Machine& machine) {
  const std::string name(wrapper.kernel);
  if (const Kernel* kernel = find_kernel(name, DeviceKind::cuda)) {
    expect_served(name.c_str(), stage, kernel->refusals(stage, machine));
    return;
  }
  Reasons why = unserved(stage, served_around_everything(wrapper.wrap), DeviceKind::cuda);
  if (wrapper.wrap == Wrap::padded && stage.c % padded_multiple == 0 &&
      stage.k % padded_multiple == 0)
    why.push_back(
        fmt::format("C and K are multiples of {}, as {} needs", padded_multiple, wrapper.inner));
  if (wrapper.wrap == Wrap::pooled) cuda::refuse_pooled(stage, why);
  if (wrapper.wrap == Wrap::fired) cuda::refuse_fire(stage, why);
  if (why.empty() && wrapper.wrap == Wrap::pooled &&
      serves(std::string(wrapper.inner), stage, machine))
    why.push_back(fmt::format("{} runs the stage in one launch", wrapper.inner));
  expect_served(name.c_str(), stage, why);
}

}  // namespace

std::string wrapped_kernels() {
  std::string names;
  for (const Wrapper& wrapper : wrappers)
    names += (names.empty() ? "" : ", ") + std::string(wrapper.kernel);
  return names;
}

std::unique_ptr<KernelMap> map_by_any_wrapper(const Stage& stage, const Machine& machine) {
  for (const Wrapper& wrapper : wrappers) {
    const std::string kernel(wrapper.kernel);
    if (serves(kernel, stage, machine)) return map_gpu_kernel(kernel, stage, machine, {});
  }
  return nullptr;
}

std::unique_ptr<KernelMap> map_wrapped(const std::string& kernel, const Stage& stage,
                                       const Machine& machine, const std::string& tile) {
  for (const Wrapper& wrapper : wrappers) {
    if (wrapper.kernel != kernel) continue;
    expect_wrapped(wrapper, stage, machine);
    return std::make_unique<WrappedMap>(stage, wrapper, inner_map(wrapper, stage, machine, tile));
  }
  return nullptr;
}

}  // namespace convoy::inspect
