#include "cpu/spike/spike_chain.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "convoy/error.hpp"
#include "core/failure.hpp"

namespace convoy::cpu {
namespace {

// What SpikeLayout::image_bytes() says where it fits: a border may be as large as a stage's
// padding.
Size image_bytes(const SpikeLayout& layout) {
  return (Size(layout.h) + layout.pad.top + layout.pad.bottom) *
         (Size(layout.w) + layout.pad.left + layout.pad.right) * layout.bytes();
}

/// Columns for every bit of a layout, from the columns [H,W,C] of a linear layer.
std::vector<float> columns_of_bits(const float* w, Index k, const SpikeLayout& layout) {
  const Index pixels = layout.h * layout.w, bits = layout.bytes() * 8;
  std::vector<float> result(static_cast<std::size_t>(k * pixels * bits), 0.0F);
  for (Index row = 0; row < k * pixels; ++row)
    std::copy_n(w + row * layout.c, layout.c, result.begin() + row * bits);
  return result;
}

void refuse_stage(std::size_t i, std::size_t size, const Reasons& of_stage, Reasons& why) {
  for (const std::string& reason : of_stage)
    why.push_back(size == 1 ? reason : fmt::format("stage {}: {}", i + 1, reason));
}

}  // namespace

SpikePlan::SpikePlan(const Chain& chain)
    : stages_(chain.stages.begin(), chain.stages.end()), mean_(chain.mean), steps_(chain.steps()) {
  const Stage& first = stages_.front();
  layouts_.push_back({first.h, first.w, first.c, is_linear(first) ? Padding(0) : first.pad, false});
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Shapes shapes = shapes_of(stages_[i]);
    const bool last = i + 1 == stages_.size();
    const Padding border = last || is_linear(stages_[i + 1]) ? Padding(0) : stages_[i + 1].pad;
    // A unit that reads the image fires in step 1 wherever it fires in step 0.
    const bool increments = i == 0 && reads_images() && steps_ == 2;
    layouts_.push_back({shapes.out_h, shapes.out_w, stages_[i].k, border, increments});
  }
  lay_out_scratch();
}

bool SpikePlan::linear(std::size_t i) const {
  return is_linear(stages_[i]);
}

void SpikePlan::lay_out_scratch() {
  const auto place = [&](Size bytes) {
    const auto at = static_cast<std::size_t>(bytes_.value());
    bytes_ += bytes + 63;
    if (bytes_.fits()) bytes_ = bytes_.value() / 64 * 64;
    return at;
  };
  Size floats;
  for (std::size_t i = 0; i <= stages_.size(); ++i) {
    const bool unused = (i == 0 && reads_images()) || (i == stages_.size() && mean_);
    scratch_.bits.push_back(
        place(unused ? Size(0) : Size(steps_) * block * image_bytes(layouts_[i]) + spike_slack));
    if (i == stages_.size() || (i == 0 && reads_images())) continue;
    if (SpikeEvents::pays(stages_[i]))
      floats = std::max(floats, SpikeEvents::scratch_floats(stages_[i], steps_));
    else if (linear(i))
      floats = std::max(floats, Size(SpikeLinear::scratch_floats(stages_[i])));
  }
  scratch_.images = place(reads_images() ? Size(SpikeFirst::scratch_bytes(stages_[0])) : Size(0));
  scratch_.floats = place(floats * Index{sizeof(float)});
  scratch_.mean = place(mean_ ? Size(block) * stages_.back().k * Index{sizeof(float)} : Size(0));
}

Size SpikePlan::scratch_bytes() const {
  return bytes_;
}

SpikeTables::SpikeTables(const SpikePlan& plan, std::span<const Parameters> all) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Stage& stage = plan.stage(i);
    const Parameters& given = all[i];
    Layer layer;
    if (i == 0 && plan.reads_images()) {
      Reasons why;
      SpikeFirst::refuse_weights(stage, given.w, given.bias, given.values, why);
      if (!why.empty())
        throw Unsupported(fmt::format("spike_chain: {}: {}", to_text(stage), fmt::join(why, "; ")));
      layer.first =
          std::make_unique<SpikeFirst>(stage, given.w, given.bias, given.values, plan.layout(1));
    } else if (plan.linear(i)) {
      const auto columns = columns_of_bits(given.w, stage.k, plan.layout(i));
      if (SpikeEvents::pays(stage))
        layer.events = std::make_unique<SpikeEvents>(
            stage, plan.steps(), columns.data(), given.bias, plan.layout(i), plan.layout(i + 1));
      else
        layer.linear = std::make_unique<SpikeLinear>(stage, plan.steps(), columns.data(),
                                                     given.bias, plan.layout(i));
    } else if (SpikeEvents::pays(stage)) {
      layer.events = std::make_unique<SpikeEvents>(stage, plan.steps(), given.w, given.bias,
                                                   plan.layout(i), plan.layout(i + 1));
    } else {
      layer.conv = std::make_unique<SpikeConv>(stage, given.w, given.bias, plan.layout(i),
                                               plan.layout(i + 1));
    }
    layers_.push_back(std::move(layer));
  }
}

void refuse_spike_chain(const Chain& chain, Reasons& why) {
  const bool images = chain.front().dtype == DType::u8;
  if (!images && !chain.binary) why.emplace_back("the input is neither u8 images nor spikes");
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const Stage& stage = chain[i];
    const bool last = i + 1 == chain.size();
    Reasons of_stage;
    if (i == 0 && images) {
      SpikeFirst::refuse(stage, of_stage);
      if (!stage.hold) of_stage.emplace_back("u8 images are held over the steps: expected +hold");
    } else if (is_linear(stage)) {
      SpikeLinear::refuse(stage, of_stage);
    } else {
      SpikeConv::refuse(stage, of_stage);
    }
    if (!stage.act.is_neuron() && !(last && chain.mean))
      of_stage.emplace_back("no neuron, and not the mean that ends a chain");
    refuse_stage(i, chain.size(), of_stage, why);
  }
  if (!why.empty()) return;
  const SpikePlan plan(chain);
  if (!plan.scratch_bytes().fits(Index{1} << 40))
    why.emplace_back("the spikes between its stages take more than 2^40 bytes");
  // SpikeConv keeps where a tap lies in an image as 32 bits.
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (!image_bytes(plan.layout(i)).fits(std::numeric_limits<std::int32_t>::max()))
      refuse_stage(i, plan.size(), {"the spikes of an image take 2^31 bytes or more"}, why);
}

}  // namespace convoy::cpu
