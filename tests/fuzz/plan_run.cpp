// Any text of a stage that parses: planned, and run by a kernel and a tile that the text picks,
// with poisoned workspaces of exactly the bytes that the plan asked for, operands in fences, and
// results compared with those of `general`. Any text of a network that parses: assembled with
// weights that its text determines and run, with its spike kernels and without. Anything else
// short: a drawn stage.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "convoy/error.hpp"
#include "convoy/network.hpp"
#include "convoy/plan.hpp"
#include "core/size.hpp"
#include "fuzz/memory_limit.hpp"
#include "verify/guarded.hpp"
#include "verify/parity.hpp"

namespace {

using namespace convoy;
using verify::Inputs;
using verify::Result;

[[noreturn]] void fail(const Stage& stage, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", to_text(stage).c_str(), what.c_str());
  std::abort();
}

// Small enough for some hundred runs a second.
bool is_small(const Stage& stage) {
  const Shapes shapes = shapes_of(stage);
  constexpr Index most = 1 << 14;
  return Size(shapes.macs) * stage.t <= Size(1 << 19) && shapes.x_elements <= most &&
         shapes.w_elements <= most && shapes.y_elements <= most && shapes.pre_elements <= most;
}

Result run(const Stage& stage, const Inputs& inputs, const PlanOptions& options,
           verify::Views views) {
  Plan plan(stage, inputs.weights, options);
  const std::size_t bytes = plan.workspace_bytes();
  // From malloc, so that the sanitizer sees a step behind the last byte.
  void* const workspace = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (!workspace) throw Error("no memory for the workspace");
  std::memset(workspace, 0xff, bytes);
  const Result result = verify::run_guarded(
      [&](const Operands& given) {
        Operands operands = given;
        operands.workspace = workspace;
        return plan.run(operands);
      },
      inputs, views);
  std::free(workspace);
  return result;
}

void compare(const Stage& stage, const char* what, const std::vector<float>& want,
             const std::vector<float>& got, bool exactly) {
  double largest = 1;
  for (const float v : want)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(static_cast<double>(v)));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool same = want[i] == got[i] || (std::isnan(want[i]) && std::isnan(got[i])) ||
                      (!exactly && std::abs(static_cast<double>(want[i]) -
                                            static_cast<double>(got[i])) <= 1e-2 * largest);
    if (!same)
      fail(stage, std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(got[i]) +
                      ", general has " + std::to_string(want[i]));
  }
}

void run_stage(const Stage& stage, std::uint64_t hash) {
  auto inputs = verify::draw_inputs(stage, verify::Data::integers, hash);
  const bool exact = inputs.has_value();
  if (!inputs) inputs = verify::draw_inputs(stage, verify::Data::normal, hash);
  try {
    PlanOptions options;
    options.use_tuning = false;
    options.threads = 1;
    options.kernel = "general";
    const Result want = run(stage, *inputs, options, verify::Views::dense);
    if (!want.error.empty()) fail(stage, "general: " + want.error);
    const Machine machine = cpu_machine(1);
    const auto kernels = verify::fitting_kernels(stage, machine);
    const Kernel& kernel = *kernels[hash % kernels.size()];
    const auto tiles = kernel.tiles(stage, machine);
    options.kernel = kernel.name();
    options.tile = tiles[hash / 64 % tiles.size()].name;
    const Result got =
        run(stage, *inputs, options, hash & 32 ? verify::Views::strided : verify::Views::dense);
    if (!got.error.empty()) fail(stage, options.kernel + ": " + got.error);
    // A neuron turns the last bit of inexact sums into a spike.
    if (stage.act.is_neuron() && !exact) return;
    compare(stage, options.kernel.c_str(), want.y, got.y, exact && kernel.exact());
  } catch (const Error& error) {  // no memory
    if (std::string_view(error.what()).empty()) std::abort();
  }
}

// Logits of three images.
std::vector<float> logits_of(const NetworkText& text, std::uint64_t hash, bool spike_kernels) {
  verify::Random random(hash);
  std::map<std::string, std::vector<float>> values;
  const auto draw = [&](const std::string& name, Index count, int low) {
    for (std::vector<float>& drawn = values[name]; count > 0; --count)
      drawn.push_back(static_cast<float>(random.between(low, 2)));
  };
  for (const NetworkLayer& layer : text.layers) {
    if (layer.flatten) continue;
    const Index k = layer.stage.k;
    draw(layer.name + ".weight", shapes_of(layer.stage).w_elements, -2);
    if (layer.stage.bias) draw(layer.name + ".bias", k, -2);
    if (layer.batchnorm.empty()) continue;
    for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"})
      draw(layer.batchnorm + part, k, 0);
  }
  NetworkParameters parameters;
  for (auto& [name, drawn] : values)
    parameters[name] = ConstTensorView::of(drawn.data(), {static_cast<Index>(drawn.size())});
  NetworkOptions options;
  options.threads = 1 + static_cast<int>(hash % 2);
  options.batch = 2;
  options.spike_kernels = spike_kernels;
  const Network net(text, parameters, options);
  Tensor images(text.dtype, {3, text.h, text.w, text.c}), logits(DType::f32, {3, net.classes()});
  if (text.dtype == DType::u8)
    for (Index i = 0; i < images.elements(); ++i)
      images.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.next());
  std::memset(logits.data<char>(), 0x7e, logits.bytes());
  net.run(images, logits, {}).or_throw();
  return {logits.data<float>(), logits.data<float>() + logits.elements()};
}

void run_network(std::string_view input, std::uint64_t hash) {
  const NetworkText text = parse_network(input, "network.txt");
  Size work = Size(text.h) * text.w * text.c;
  for (const NetworkLayer& layer : text.layers) {
    if (layer.flatten) continue;
    Stage three = layer.stage;
    three.n = 3;
    if (!problems(three).empty() || !is_small(three)) return;
    work += shapes_of(three).macs;
  }
  if (!work.fits(1 << 19) || text.steps > 8) return;
  const std::vector<float> plain = logits_of(text, hash, false),
                           spikes = logits_of(text, hash, true);
  if (plain.size() != spikes.size()) std::abort();
  constexpr unsigned char unwritten[] = {0x7e, 0x7e, 0x7e, 0x7e};
  for (const auto* logits : {&plain, &spikes})
    for (const float v : *logits)
      if (std::memcmp(&v, unwritten, sizeof v) == 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::uint64_t hash = verify::mix(1, text);
  try {
    if (text.find("input ") != std::string_view::npos) {
      run_network(text, hash);
      return 0;
    }
    Stage stage;
    try {
      stage = parse_stage(text);
    } catch (const Error&) {
      if (size > 8) return 0;
      verify::Random random(hash);
      stage = verify::draw_stage(random);
    }
    if (is_small(stage)) run_stage(stage, hash);
  } catch (const Error& error) {  // illegal, or no memory
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}
