#include "network/spike_chain.hpp"

#include <algorithm>
#include <chrono>
#include <new>

#include "core/assume.hpp"
#include "core/size.hpp"

namespace convoy::network {
namespace {

using Clock = std::chrono::steady_clock;

std::int32_t arg_max(const float* values, Index count) {
  Index best = 0;
  for (Index i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  return static_cast<std::int32_t>(best);
}

// What SpikeLayout::image_bytes() says where it fits: a border may be as large as a stage's
// padding.
Size image_bytes(const cpu::SpikeLayout& layout) {
  return (Size(layout.h) + layout.pad.top + layout.pad.bottom) *
         (Size(layout.w) + layout.pad.left + layout.pad.right) * layout.bytes();
}

}  // namespace

SpikeChain::SpikeChain(std::vector<Layer> layers, const cpu::SpikeLayout& input, Index image_values,
                       Index steps, int threads)
    : layers_(std::move(layers)), input_(input), image_values_(image_values), steps_(steps) {
  CONVOY_ASSUME(!layers_.empty() && threads >= 1);
  for (int i = 0; i < threads; ++i) slots_.push_back(make_slot());
}

SpikeChain::Slot SpikeChain::make_slot() const {
  Slot slot;
  const auto add = [&](Size bytes) {
    if (!bytes.fits()) throw std::bad_alloc();
    Buffer<std::uint8_t> bits(static_cast<std::size_t>(bytes.value()));
    std::fill_n(bits.data(), bits.size(), std::uint8_t{0});  // borders stay 0 from here on
    slot.bits.push_back(std::move(bits));
  };
  std::size_t images = 0, floats = 0;
  add(layers_[0].first ? 0 : Size(steps_) * block_ * image_bytes(input_));
  for (const Layer& layer : layers_) {
    add(layer.mean ? 0 : Size(steps_) * block_ * image_bytes(layer.output));
    if (layer.first) images = std::max(images, layer.first->scratch_bytes());
    if (layer.linear) floats = std::max(floats, layer.linear->scratch_floats());
    if (layer.mean) slot.mean = Buffer<float>(static_cast<std::size_t>(block_ * layer.k));
  }
  slot.images = Buffer<std::byte>(images);
  slot.floats = Buffer<float>(floats);
  slot.seconds = Buffer<double>(layers_.size());
  return slot;
}

cpu::SpikeBlock SpikeChain::block_of(const Slot& slot, std::size_t boundary) const {
  const cpu::SpikeLayout& layout = boundary == 0 ? input_ : layers_[boundary - 1].output;
  return {slot.bits[boundary].data(), block_ * layout.image_bytes()};
}

void SpikeChain::run_block(Slot& slot, Index first, Index count, Index total,
                           const ChainSource& source, const ChainSink& sink, double* seconds,
                           float* const* outputs) const {
  if (!layers_[0].first) {
    const Index image = input_.h * input_.w * input_.c;
    cpu::pack_spikes(input_, steps_, count, source.spikes + first * image, total * image,
                     block_of(slot, 0));
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const cpu::SpikeBlock in = block_of(slot, i), out = block_of(slot, i + 1);
    const auto begin = seconds ? Clock::now() : Clock::time_point();
    if (layer.first)
      layer.first->run(count, source.images + first * image_values_, out, slot.images.data());
    else if (layer.conv)
      layer.conv->run(count, in, out);
    else if (layer.mean)
      layer.linear->run_mean(count, in, slot.mean.data(), slot.floats.data());
    else
      layer.linear->run(count, in, out, slot.floats.data());
    if (seconds) seconds[i] += std::chrono::duration<double>(Clock::now() - begin).count();
    if (outputs) {
      const Index image = layer.mean ? layer.k : layer.output.h * layer.output.w * layer.output.c;
      float* const to = outputs[i] + first * image;
      if (layer.mean)
        std::copy_n(slot.mean.data(), count * image, to);
      else
        cpu::unpack_spikes(layer.output, steps_, count, out, to, total * image);
    }
  }
  const Layer& last = layers_.back();
  if (last.mean) {
    if (sink.mean) std::copy_n(slot.mean.data(), count * last.k, sink.mean + first * last.k);
    if (sink.labels)
      for (Index i = 0; i < count; ++i)
        sink.labels[first + i] = arg_max(slot.mean.data() + i * last.k, last.k);
  } else if (sink.spikes) {
    const Index image = last.output.h * last.output.w * last.output.c;
    cpu::unpack_spikes(last.output, steps_, count, block_of(slot, layers_.size()),
                       sink.spikes + first * image, total * image);
  }
}

void SpikeChain::run(Threads& threads, Index n, const ChainSource& source, const ChainSink& sink,
                     double* seconds) const {
  // Small batches are spread over the threads rather than filling one thread's block.
  const Index block = std::clamp<Index>((n + threads.count() - 1) / threads.count(), 1, block_);
  if (seconds)
    for (Slot& slot : slots_) std::fill_n(slot.seconds.data(), layers_.size(), 0.0);
  threads.for_each((n + block - 1) / block, [&](Index task, int index) {
    CONVOY_ASSUME(index >= 0 && static_cast<std::size_t>(index) < slots_.size());
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    const Index first = task * block;
    run_block(slot, first, std::min(block, n - first), n, source, sink,
              seconds ? slot.seconds.data() : nullptr, nullptr);
  });
  if (seconds)
    for (const Slot& slot : slots_)
      for (std::size_t i = 0; i < layers_.size(); ++i) seconds[i] += slot.seconds[i];
}

void SpikeChain::trace(Index n, const ChainSource& source, float* const* outputs) const {
  for (Index first = 0; first < n; first += block_)
    run_block(slots_[0], first, std::min(block_, n - first), n, source, {}, nullptr, outputs);
}

}  // namespace convoy::network
