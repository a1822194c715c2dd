#include "plan/repack.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "core/assume.hpp"
#include "core/failure.hpp"
#include "core/gpu.hpp"
#include "core/gpu_async.hpp"
#include "math/winograd.hpp"

namespace convoy {
namespace {

// Numbers below this are exact in fp32, with one to spare: 0 stands for no source.
constexpr Index digit = Index{1} << 20;

constexpr Index vectors_of_norm = 5;  // the convolution's bias, gamma, beta, mean, variance

/// What `laid_out` makes of one digit of each source's number, plus 1.
std::vector<float> digits(const Prepared& prepared, std::size_t block, Index sources, Index unit) {
  std::vector<float> from(static_cast<std::size_t>(sources));
  for (Index i = 0; i < sources; ++i)
    from[static_cast<std::size_t>(i)] = static_cast<float>(i / unit % digit + 1);
  return prepared.laid_out(block, from.data());
}

/// How far from the first weight the weight of that dense number lies.
Index place_of(Index number, const ConstTensorView& weights, bool flips) {
  const auto& shape = weights.shape;
  const Index taps = shape[1] * shape[2];
  const Index c = number % shape[3], k = number / shape[3] / taps;
  Index tap = number / shape[3] % taps;
  if (flips) tap = taps - 1 - tap;
  return k * weights.stride[0] + tap / shape[2] * weights.stride[1] +
         tap % shape[2] * weights.stride[2] + c * weights.stride[3];
}

/// Whether the weights fill the memory from the first to the last, in whatever order.
bool fills_its_memory(const ConstTensorView& weights) {
  std::array<std::pair<Index, Index>, 4> axes;  // stride and size
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = {weights.stride[i], weights.shape[i]};
  std::sort(axes.begin(), axes.end());
  Index elements = 1;
  for (const auto& [stride, size] : axes) {
    if (size == 1) continue;
    if (stride != elements) return false;
    elements *= size;
  }
  return true;
}

/// Drawn once per process: weights can't be made to have a fingerprint of others.
const Tensor& watch_keys() {
  static const Tensor keys = [] {
    Tensor drawn(DType::u8, {static_cast<Index>(gpu::watch_key_bytes)});
    std::random_device random;
    auto* const words = reinterpret_cast<std::uint32_t*>(drawn.data<std::uint8_t>());
    std::generate_n(words, gpu::watch_key_bytes / sizeof *words, std::ref(random));
    return drawn;
  }();
  return keys;
}

}  // namespace

std::vector<Index> sources_of(const Prepared& prepared, std::size_t block, Index sources) {
  const std::vector<float> low = digits(prepared, block, sources, 1);
  const std::vector<float> high =
      sources > digit ? digits(prepared, block, sources, digit) : std::vector<float>();
  std::vector<Index> all(low.size());
  for (std::size_t i = 0; i < low.size(); ++i) {
    all[i] = static_cast<Index>(low[i]) - 1;
    if (all[i] >= 0 && !high.empty()) all[i] += (static_cast<Index>(high[i]) - 1) * digit;
    CONVOY_ASSUME(all[i] >= -1 && all[i] < sources);
  }
  return all;
}

Repack::Repack(const Prepared& prepared, const Stage& stage, Device device, bool flips)
    : stage_(stage), device_(device), flips_(flips) {
  const std::vector<float> zeros(static_cast<std::size_t>(shapes_of(stage).w_elements));
  const Parameters parameters{.w = zeros.data()};
  weights_ = prepared.pack({&parameters, 1});
  if (weights_->blocks().empty())
    throw Unsupported(
        fmt::format("repack: the kernel of {} can't pack its weights on {}. Use set_weights.",
                    to_text(stage), to_text(device)));
}

std::vector<Tensor> Repack::maps_of(const Prepared& prepared,
                                    const ConstTensorView& weights) const {
  std::vector<Tensor> maps;
  const std::vector<PackedBlock> blocks = weights_->blocks();
  const Index elements = shapes_of(stage_).w_elements;
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    const bool transforms = blocks[block].of_transforms;
    const Index sources = transforms ? math::winograd4::points * stage_.k * stage_.c : elements;
    const std::vector<Index> all = sources_of(prepared, block, sources);
    CONVOY_ASSUME(static_cast<Index>(all.size()) == blocks[block].count);
    Tensor map(DType::i32, {static_cast<Index>(all.size())});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Index from = all[i] < 0 || transforms ? all[i] : place_of(all[i], weights, flips_);
      if (from > std::numeric_limits<std::int32_t>::max())
        throw InvalidOperand(
            fmt::format("repack: {} spans more than 2^31 - 1 elements, expected at most that "
                        "number. Copy the weights into a dense tensor first.",
                        describe(weights)));
      map.data<std::int32_t>()[i] = static_cast<std::int32_t>(from);
    }
    maps.push_back(map.to(device_));
  }
  return maps;
}

void Repack::make_watch() {
  const auto sums = [](Index values) {
    const auto bytes = static_cast<std::size_t>(values) * sizeof(float);
    return static_cast<Index>((bytes + gpu::watch_chunk - 1) / gpu::watch_chunk);
  };
  sums_of_weights_ = sums(shapes_of(stage_).w_elements), sums_of_vector_ = sums(stage_.k);
  const Index all = sums_of_weights_ + vectors_of_norm * sums_of_vector_;
  keys_ = watch_keys().to(device_);
  seen_ = Tensor(DType::u8, {all * static_cast<Index>(gpu::watch_sum_bytes)}, device_);
  changed_ = Tensor(DType::i32, {1}, device_);
}

const Repack::Order& Repack::order_of(const Prepared& prepared, const ConstTensorView& weights,
                                      Stream stream) {
  Strides strides{};  // those of single elements say nothing
  for (std::size_t i = 0; i < strides.size(); ++i)
    if (weights.shape[i] > 1) strides[i] = weights.stride[i];
  if (const auto found = orders_.find(strides); found != orders_.end()) return found->second;
  if (gpu::is_captured(device_, stream))
    throw Error(
        "repack: the stream is being captured in a CUDA graph, and the first repack of weights "
        "with these strides takes memory. Call repack once before the capture, as PyTorch's "
        "warm-up "
        "does.");
  if (orders_.empty()) make_watch();
  Order order{orders_.size() + 1, maps_of(prepared, weights)};
  return orders_.emplace(strides, std::move(order)).first->second;
}

gpu::Watch Repack::watch_of(const ConstTensorView& weights, std::uint64_t order) {
  // The type and the order are part of the fingerprint: the same bytes are other weights by them.
  constexpr std::uint64_t types = 256;
  return {.from = weights.data,
          .bytes = static_cast<std::size_t>(weights.elements()) * size_of(weights.dtype),
          .meaning = order * types + static_cast<std::uint64_t>(weights.dtype),
          .seen = seen_.data<std::uint8_t>(),
          .keys = keys_.data<std::uint8_t>(),
          .changed = changed_.data<std::int32_t>()};
}

gpu::Fill Repack::fill_of(const Order& order, std::size_t block,
                          const ConstTensorView& weights) const {
  gpu::Fill fill{.from = weights.data,
                 .from_type = weights.dtype,
                 .map = order.maps[block].data<std::int32_t>(),
                 .to = weights_->blocks()[block],
                 .changed = changed_.data<std::int32_t>()};
  if (fill.to.of_transforms) {
    fill.k = stage_.k, fill.c = stage_.c;
    std::copy_n(weights.stride.begin(), 4, fill.stride.begin());
    if (flips_) {  // the last tap first
      fill.origin = 2 * (fill.stride[1] + fill.stride[2]);
      fill.stride[1] = -fill.stride[1], fill.stride[2] = -fill.stride[2];
    }
  }
  return fill;
}

void Repack::fill(const Prepared& prepared, const ConstTensorView& weights, Stream stream) {
  const Order& order = order_of(prepared, weights, stream);
  const gpu::StreamFacts facts = gpu::facts_of(device_, stream);
  if (facts.capture == 0) follow(facts, stream);
  const bool compares = fills_its_memory(weights);
  if (compares)
    gpu::compare(device_, stream, watch_of(weights, order.number));
  else  // what is packed now has no fingerprint
    gpu::forget(device_, stream, seen_.data<std::uint8_t>(),
                static_cast<std::size_t>(seen_.elements()));
  for (std::size_t block = 0; block < order.maps.size(); ++block) {
    gpu::Fill fill = fill_of(order, block, weights);
    if (!compares) fill.changed = nullptr;
    gpu::fill(device_, stream, fill);
  }
  gpu::finish_fills(device_, stream, changed_.data<std::int32_t>());
  if (facts.capture != 0) return;
  if (!own_) own_ = std::make_shared<gpu::Event>(device_);
  own_->record(stream);
  filled(own_, facts);
}

void Repack::follow(gpu::StreamFacts facts, Stream stream) const {
  if (last_ && !(facts == last_facts_)) last_->hold_back(stream);
}

void Repack::filled(std::shared_ptr<gpu::Event> event, gpu::StreamFacts facts) {
  last_ = std::move(event), last_facts_ = facts;
}

std::optional<GroupPart> Repack::part(const Prepared& prepared, const ConstTensorView& weights,
                                      const gpu::FoldedNorm& norm, std::int32_t* changed,
                                      Stream stream) {
  const bool folds = norm.variance.data != nullptr;
  const Index filter = shapes_of(stage_).w_elements / stage_.k;
  if (!fills_its_memory(weights) || (folds && stage_.k > 1 && weights.stride[0] != filter))
    return {};
  const Order& order = order_of(prepared, weights, stream);
  GroupPart part;
  part.watches.push_back(watch_of(weights, order.number));
  if (folds) {
    constexpr std::uint64_t folded = std::uint64_t{1} << 63;
    part.watches.front().meaning |= folded;
  }
  if (norm.shift) add_vectors(norm, part);
  for (gpu::Watch& watch : part.watches) watch.changed = changed;
  for (std::size_t block = 0; block < order.maps.size(); ++block) {
    gpu::GroupFill& one = part.fills.emplace_back();
    one.fill = fill_of(order, block, weights), one.fill.changed = changed;
    one.norm = norm, one.filter_elements = filter, one.shifts = norm.shift && block == 0;
  }
  return part;
}

void Repack::add_vectors(const gpu::FoldedNorm& norm, GroupPart& part) {
  const std::array all{norm.bias, norm.gamma, norm.beta, norm.mean, norm.variance};
  static_assert(all.size() == vectors_of_norm);
  // The same vectors mean another packing with another eps, if one of them is absent, or if the
  // shift goes elsewhere.
  std::uint64_t present = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].data) present |= std::uint64_t{1} << i;
  const std::uint64_t to = reinterpret_cast<std::uintptr_t>(norm.shift);
  const std::array<std::uint64_t, vectors_of_norm> facts{
      to, 0, 0, to, std::uint64_t{std::bit_cast<std::uint32_t>(norm.eps)} << 8 | present};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].data) continue;
    gpu::Watch watch = part.watches.front();
    watch.from = all[i].data;
    watch.bytes = static_cast<std::size_t>(norm.filters) * size_of(all[i].type);
    constexpr std::uint64_t types = 16;
    watch.meaning = facts[i] * types + static_cast<std::uint64_t>(all[i].type);
    watch.seen =
        seen_.data<std::uint8_t>() +
        static_cast<std::size_t>(sums_of_weights_ + static_cast<Index>(i) * sums_of_vector_) *
            gpu::watch_sum_bytes;
    part.watches.push_back(watch);
  }
}

}  // namespace convoy
