// `pair` as networks see it: a tile, weights of both stages on the device.
#include <fmt/core.h>

#include <optional>

#include "core/gpu.hpp"
#include "cuda/family.hpp"
#include "cuda/sm90/pair.hpp"

namespace convoy::gpu {
namespace {

using cuda::sm90::HaloTile;

class PreparedPair final : public Pair {
 public:
  PreparedPair(const Stage& first, const Stage& second, const HaloTile& tile,
               const Machine& machine)
      : first_(first),
        second_(second),
        device_(machine.device.index),
        w_(memory_for(first)),
        w2_(memory_for(second)) {
    const cuda::OnDevice on(device_);
    launch_.emplace(first, second, tile,
                    cuda::sm90::pair_layout(first, second, tile, cuda::facts_of(machine)),
                    w_.data(), w2_.data());
  }

  void set_weights(const float* first, const float* second) override {
    upload(first_, first, w_);
    upload(second_, second, w2_);
  }

  Status run(Index n, const void* x, const float* bias, const float* bias2, void* y,
             Stream stream) const noexcept override {
    if (n == 0) return {};
    Status status = cuda::check_16_bytes("pair", "x", x, first_.c, first_.dtype);
    if (status.ok()) status = cuda::check_16_bytes("pair", "y", y, second_.k, second_.dtype);
    if (!status.ok()) return status;
    const cuda::OnDevice on(device_);
    return Status(launch_->run(
        {.n = n, .x = x, .bias = bias, .bias2 = bias2, .y = y, .overlap_previous = true},
        static_cast<cudaStream_t>(stream.handle)));
  }

 private:
  static void upload(const Stage& stage, const float* w, const cuda::DeviceMemory& to) {
    const std::vector<float> packed = cuda::sm90::halo_weights(stage, w);
    cuda::upload_rounded(stage.dtype, packed.data(), packed.size(), to);
  }
  cuda::DeviceMemory memory_for(const Stage& stage) const {
    return {device_, static_cast<std::size_t>(cuda::sm90::halo_weights_elements(stage)) * 2,
            "the weights of " + to_text(stage)};
  }

  Stage first_, second_;
  int device_;
  cuda::DeviceMemory w_, w2_;
  std::optional<cuda::sm90::PairLaunch> launch_;
};

}  // namespace

PairVerdict judge_pair(const Stage& first, const Stage& second, const Machine& machine) {
  const cuda::DeviceFacts facts = cuda::facts_of(machine);
  PairVerdict verdict;
  verdict.refusals = cuda::sm90::pair_refusals(first, second, facts);
  if (!verdict.refusals.empty()) return verdict;
  const std::vector<HaloTile> tiles = cuda::sm90::pair_tiles(first, second, facts);
  if (tiles.empty()) {
    verdict.refusals.emplace_back("no tile of both stages fits into shared memory");
    return verdict;
  }
  verdict.tile = tiles.front().name();
  verdict.seconds = cuda::sm90::pair_seconds(
      first, tiles.front(), cuda::sm90::pair_layout(first, second, tiles.front(), facts));
  return verdict;
}

std::unique_ptr<Pair> prepare_pair(const Stage& first, const Stage& second, const Machine& machine,
                                   std::string_view tile) {
  for (const HaloTile& one : cuda::sm90::pair_tiles(first, second, cuda::facts_of(machine)))
    if (tile.empty() || one.name() == tile)
      return std::make_unique<PreparedPair>(first, second, one, machine);
  throw Error(fmt::format("{}, then {}: no tile {} of both in one launch", to_text(first),
                          to_text(second), tile));
}

}  // namespace convoy::gpu
